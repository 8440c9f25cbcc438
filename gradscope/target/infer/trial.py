"""Try one batch on a scratch copy: what came out, or what went wrong and in which module."""

from __future__ import annotations

import contextlib
import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gradscope.probe.seeding import sheltered
from gradscope.target.sandbox import surroundings
from gradscope.target.subject import Batch, call_model

Forward = Callable[[nn.Module, Batch], Any]
NO_MEMORY = "t allocate memory"
"""What PyTorch says on a CPU where there is no memory left."""


class TooSlowError(BaseException):
    """A forward that was stopped because it took too long; no `except Exception` in a model catches it."""


@dataclass(frozen=True)
class Entered:
    """A module that was called.

    Attributes:
        name: Its qualified name.
        module: The module (of the scratch copy).
        homes: Addresses of the memory that the tensors among its arguments lie in.
        num_elements: How many numbers they hold.
    """

    name: str
    module: nn.Module
    homes: frozenset[int]
    num_elements: int


@dataclass
class Outcome:
    """What one trial showed.

    Attributes:
        output: What the model returned; None where it failed.
        error: What it raised.
        model: The copy that was run, whose parameters the output's graph leads to.
        entered: The calls of modules that have no children, in order; the failing one is `failed_in`.
        failed_in: The innermost module that was entered and not left.
        seconds: Time that this thread was busy with the forward, whatever else the machine does.
    """

    output: Any = None
    error: BaseException | None = None
    model: nn.Module | None = None
    entered: list[Entered] = field(default_factory=list)
    failed_in: Entered | None = None
    seconds: float = 0.0

    @property
    def worked(self) -> bool:
        """Whether the forward went through."""
        return self.error is None

    def forget(self) -> None:
        """Let go of the activations of a failed forward, which the frames of its error hold."""
        if self.error is not None:
            traceback.clear_frames(self.error.__traceback__)

    @property
    def too_much(self) -> bool:
        """Whether it failed for want of time or memory, so that smaller inputs may do."""
        has_no_memory = isinstance(self.error, MemoryError | torch.OutOfMemoryError) or NO_MEMORY in str(self.error)
        return isinstance(self.error, TooSlowError) or has_no_memory


def attempt(
    model: nn.Module,
    batch: Batch,
    forward: Forward | None = None,
    *,
    gradients: bool = True,
    most_seconds: float = math.inf,
) -> Outcome:
    """Run one forward, drawing random numbers from a sheltered generator.

    Args:
        model: A scratch copy.
        batch: The batch.
        forward: How it reaches the model.
        gradients: Whether to build the graph that tells which outputs have a gradient; without it a forward is cheaper.
        most_seconds: Time after which the forward is stopped where it enters the next module.
    """
    outcome = Outcome(model=model)
    open_calls: list[Entered] = []
    started = time.thread_time()
    with (
        sheltered(),
        surroundings(None),
        warnings.catch_warnings(),
        torch.set_grad_enabled(gradients),
        _watching(model, outcome, open_calls, started + most_seconds),
    ):
        warnings.simplefilter("ignore")
        try:
            outcome.output = (forward or call_model)(model, batch)
        except (Exception, SystemExit, TooSlowError) as error:  # whatever a forward raises is what we learn from
            outcome.error = error
            outcome.failed_in = open_calls[-1] if open_calls else None
    outcome.seconds = time.thread_time() - started
    return outcome


@contextlib.contextmanager
def _watching(model: nn.Module, outcome: Outcome, open_calls: list[Entered], deadline: float) -> Iterator[None]:
    handles: list[Any] = []
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue
        is_leaf = next(module.children(), None) is None

        def before(module: nn.Module, args: Any, kwargs: Any, name: str = name, is_leaf: bool = is_leaf) -> None:
            tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
            homes = frozenset(t.untyped_storage().data_ptr() for t in tensors if _has_memory(t))
            open_calls.append(Entered(name, module, homes, sum(t.numel() for t in tensors)))
            if time.thread_time() > deadline:
                raise TooSlowError("took too long")
            if is_leaf:
                outcome.entered.append(open_calls[-1])

        def after(module: nn.Module, args: Any, output: Any) -> None:
            while open_calls and open_calls.pop().module is not module:
                pass

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in memory of its own; sparse ones and those inside torch.func transforms do not."""
    return tensor.layout is torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
