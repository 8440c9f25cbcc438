"""The model afterwards is the model before: parameters, buffers, gradients, flags, modes, attributes, random state."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from gradscope.probe.kept import Kept
from gradscope.probe.listing import buffers, named_modules, named_parameters
from gradscope.probe.snapshots import is_without_values, of_tensor, shares, write


class RandomState:
    """The state of every random generator a model may draw from: torch (each device), Python's and numpy's."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        in_use = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state_all() if in_use else []
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def restore(self) -> None:
        """Put the state back."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


class Carried:
    """What a model carries from one step to the next beside its parameters: buffers and plain Python state."""

    def __init__(self, model: nn.Module) -> None:
        self.kept = Kept(model)
        with_values = [buffer for buffer in buffers(model) if not is_without_values(buffer)]
        self._buffers = [of_tensor(buffer, with_values=True) for buffer in with_values]

    def restore(self) -> None:
        """Put back which buffers there were, with their values in the memory they lived in, and all else."""
        self.kept.restore()
        with torch.no_grad():
            for put_back in self._buffers:
                put_back()


class Moment:
    """Where a model and the random generators stand: enough to run the same step again.

    Args:
        model: The model.
        weights: Values of parameters by name that differ from those at that moment; None where they are the same.
    """

    def __init__(self, model: nn.Module, weights: dict[str, torch.Tensor] | None = None) -> None:
        self._model = model
        self._random, self.carried = RandomState(), Carried(model)
        self.weights = weights

    def go(self) -> None:
        """Go back to that moment."""
        self.carried.restore()
        parameters = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, value in (self.weights or {}).items():
                if name in parameters:  # not made in the forward that is to come
                    parameters[name].data.copy_(value)
        self._random.restore()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Go back to that moment, and forward to now at the end, `.grad` included."""
        parameters = dict(self._model.named_parameters())
        grads = {name: parameter.grad for name, parameter in parameters.items()}
        now = Moment(self._model, {name: parameters[name].detach().clone() for name in self.weights or ()})
        for parameter in parameters.values():
            parameter.grad = None
        self.go()
        try:
            yield
        finally:
            now.go()
            for name, parameter in parameters.items():
                parameter.grad = grads[name]


class ModelState:
    """All there is to restore of a model. Taken before anything is done to it.

    Parameters and buffers get their values back in the very memory they lived in, so that ties, views and optimizers
    that hold them stay valid.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = [module for _, module in named_modules(model)]
        self._modules = [(module, module.__class__, module.training) for module in modules]
        self._kept = Kept(model, hooks=True)
        self._tensors: list[tuple[torch.Tensor, type, torch.Tensor, torch.Tensor | None, bool]] = []
        self._grads: list[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = []
        for tensor in [*(parameter for _, parameter in named_parameters(model)), *buffers(model)]:
            saved = None if is_without_values(tensor) else tensor.detach().clone()
            self._tensors.append((tensor, type(tensor), tensor.data, saved, tensor.requires_grad))
            grad = tensor.grad if tensor.is_leaf else None
            self._grads.append((tensor, grad, None if grad is None else grad.detach().clone()))

    def restore(self, *, values: bool = True) -> None:
        """Put everything back; without `values` nothing but modes and `.grad`: the steps are kept."""
        if values:
            self._restore_contents()
        for module, _, training in self._modules:
            if module.training is not training:
                module.training = training
        with torch.no_grad():
            for tensor, grad, saved in self._grads:
                if tensor.is_leaf:
                    tensor.grad = grad
                if grad is not None and saved is not None:
                    grad.copy_(saved)

    def _restore_contents(self) -> None:
        for module, kind, _ in self._modules:
            if module.__class__ is not kind:
                module.__class__ = kind
        self._kept.restore()
        with torch.no_grad():
            for tensor, kind, data, saved, requires_grad in self._tensors:
                _restore_values(tensor, kind, data, saved)
                if tensor.requires_grad != requires_grad and tensor.is_leaf:
                    tensor.requires_grad_(requires_grad)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Undo what a measurement of our own does to buffers and random state."""
    random_state, carried = RandomState(), Carried(model)
    try:
        yield
    finally:
        carried.restore()
        random_state.restore()


def _restore_values(tensor: torch.Tensor, kind: type, data: torch.Tensor, saved: torch.Tensor | None) -> None:
    if type(tensor) is not kind:  # a lazy parameter that the forward gave a shape
        tensor.data = torch.empty(0, device=tensor.device)
        tensor.__class__ = kind
    elif saved is not None:
        write(data, saved)
        if not shares(tensor, data):
            tensor.data = data
