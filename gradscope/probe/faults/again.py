"""The outermost forwards of a step in a loop that is not ours, kept so that a step that went wrong can be run again."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import nn

from gradscope.probe.restore import ModelState, RandomState
from gradscope.probe.watching import backward, calling
from gradscope.probe.watching.modes import without_modes
from gradscope.probe.watching.tensors import differentiable, tensors_in

_MOST_FORWARDS = 8
"""Outermost forwards of a step that are kept, with what they were given."""


@dataclass
class _Forward:
    """One outermost forward: what was called with what, and how the world stood."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[int]
    random_state: RandomState
    autocast: tuple[str, bool, torch.dtype]

    @property
    def unchanged(self) -> bool:
        """Whether nothing was written in place to what it was given."""
        return [tensor._version for tensor in tensors_in((self.args, self.kwargs))] == self.versions

    def run(self) -> Any:
        """Run it again."""
        self.random_state.restore()
        device, enabled, dtype = self.autocast
        with torch._C._EnableTorchFunction(), torch.autocast(device, dtype, enabled=enabled):
            # Straight to the module inside: the wrapper would wait for a backward that fills `.grad`.
            wrapped = isinstance(self.module, nn.parallel.DistributedDataParallel)
            module: nn.Module = self.module.module if wrapped else self.module  # type: ignore[assignment]
            return module(*self.args, **self.kwargs)


class Forwards:
    """What the outermost forwards of one step were given.

    Args:
        model: The model they are of.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._forwards: list[_Forward] = []
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._left_out = False

    def add(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a forward that is about to run."""
        if len(self._forwards) == _MOST_FORWARDS:
            self._left_out = True
            return
        if not self._forwards:
            floating = [buffer for buffer in self._model.buffers() if buffer.is_floating_point()]
            self._buffers = [(buffer, buffer.detach().clone()) for buffer in floating]
        versions = [tensor._version for tensor in tensors_in((args, kwargs))]
        device = next((p.device.type for p in module.parameters()), "cpu")
        autocast = device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        self._forwards.append(_Forward(module, args, kwargs, versions, RandomState(), autocast))

    def obstacle(self) -> str | None:
        """Return why the forwards cannot be run again, None where they can."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if distributed and torch.distributed.get_world_size() > 1:
            return "a step of a distributed run cannot be run again by one process alone"
        if self._left_out or not self._forwards:
            return f"only steps of up to {_MOST_FORWARDS} forwards are run again"
        if not all(forward.unchanged for forward in self._forwards):
            return "the batch was changed in place after the forward"
        return None

    @property
    def given(self) -> list[Any]:
        """What the forwards were given."""
        return [(forward.args, forward.kwargs) for forward in self._forwards]

    def run(self) -> list[Any]:
        """Run the forwards again and return what they return."""
        return [forward.run() for forward in self._forwards]

    @contextmanager
    def moment(self, weights: dict[str, torch.Tensor]) -> Iterator[None]:
        """Go back to the moment of the forwards, unseen by anyone, and forward to now at the end.

        Args:
            weights: The values before the step of the parameters that it changed, by name.
        """
        now, random_state = ModelState(self._model), RandomState()
        parameters = dict(self._model.named_parameters())
        try:
            with ExitStack() as stack:
                for context in (calling.alone(), backward.alone(), without_modes(), _without_global_hooks()):
                    stack.enter_context(context)
                stack.enter_context(redirect_stdout(io.StringIO()))
                stack.enter_context(redirect_stderr(io.StringIO()))
                stack.enter_context(torch.enable_grad())
                with torch.no_grad():
                    for name, value in weights.items():
                        parameters[name].data.copy_(value)
                    for buffer, value in self._buffers:
                        buffer.data.copy_(value)
                yield
        finally:
            now.restore()
            random_state.restore()


def back_from_loss(outcome: Any) -> None:
    """Go back through what a forward returned, where that is a loss with a gradient."""
    if isinstance(outcome, torch.Tensor) and outcome.requires_grad:
        outcome.backward()


def send_back(model: nn.Module, arrived: Callable[[int, int], bool]) -> Callable[[list[Any]], None]:
    """Return a function that sends a gradient of ones back through outputs and fills no `.grad`.

    Args:
        model: Whose parameters the gradients go to.
        arrived: Whether a gradient came to the n-th floating tensor of the i-th output in the step itself.
    """

    def backward_through(outputs: list[Any]) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        roots = []
        for i, output in enumerate(outputs):
            floating = [t for t in tensors_in(output) if t.is_floating_point() or t.is_complex()]
            roots += [t for n, t in enumerate(floating) if differentiable(t) and arrived(i, n)]
        if roots and parameters:
            torch.autograd.grad(roots, parameters, [torch.ones_like(root) for root in roots], allow_unused=True)

    return backward_through


@contextmanager
def _without_global_hooks() -> Iterator[None]:
    """Leave out the user's hooks on every module: they look on, and would count this run as well."""
    module = torch.nn.modules.module
    tables = (module._global_forward_hooks, module._global_forward_pre_hooks, module._global_backward_hooks)
    kept = [table.copy() for table in tables]
    for table in tables:
        table.clear()
    try:
        yield
    finally:
        for table, content in zip(tables, kept, strict=True):
            table.update(content)
