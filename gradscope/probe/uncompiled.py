"""torch without its compiler, of which optimizers and `autograd` load parts to ask whether it is at work.

Loading them takes more than a second of processor time, as much as the rest of a small inspection, and nothing is
compiled here. What is called is torch's own code underneath; where the compiler is loaded already, or anybody listens
to the steps of an optimizer, those go their usual way.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import GradientEdge
from torch.optim import optimizer as optimizer_module

_COMPILER = "torch._dynamo"
_autograd: Any = torch.autograd


@contextmanager
def building() -> Iterator[None]:
    """Build one of torch's optimizers inside of this."""
    kind = torch.optim.Optimizer
    original = kind.add_param_group
    if _COMPILER not in sys.modules:
        kind.add_param_group = inspect.unwrap(original)  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.add_param_group = original  # type: ignore[method-assign]


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """Do what `optimizer.step()` does."""
    if _COMPILER in sys.modules or _is_changed(optimizer):
        optimizer.step()
        return
    with torch.set_grad_enabled(bool(optimizer.defaults.get("differentiable", False))):
        inspect.unwrap(type(optimizer).step)(optimizer)


def _is_changed(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether a step does anything besides what torch wrote: a class or a method of somebody else, hooks."""
    own = type(optimizer).__module__.startswith("torch.optim.") and "step" not in vars(optimizer)
    return not own or any(
        (
            optimizer._optimizer_step_pre_hooks,
            optimizer._optimizer_step_post_hooks,
            optimizer_module._global_optimizer_pre_hooks,
            optimizer_module._global_optimizer_post_hooks,
        )
    )


def pull_back(end: GradientEdge, start: GradientEdge | torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor | None:
    """Return J^T v: what `autograd.grad([end], [start], [cotangent])` returns, None where no path leads there.

    The graph stays. The cotangent has the shape, dtype and device of the end, which is not looked at again.
    """
    found: tuple[torch.Tensor | None, ...] = _autograd._engine_run_backward(
        (end,), (cotangent,), True, False, (start,), True, accumulate_grad=False
    )
    return found[0]
