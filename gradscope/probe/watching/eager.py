"""What has to hold around a watched step: compiled code runs eagerly, and the stack is deep enough for our frames."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from gradscope.probe.listing import named_modules

_EXTRA_FRAMES = 200
"""Frames that our own functions may need on top of the deepest frame of the model."""


@contextmanager
def eagerly(model: nn.Module) -> Iterator[None]:
    """Run everything that was compiled with `torch.compile` eagerly, and allow a few more frames.

    Args:
        model: The wrappers of compiled modules in it hand on to those modules through an ordinary call, which is seen.
    """
    wrappers = {module: vars(module)["forward"] for _, module in _compiled_wrappers(model) if "forward" in vars(module)}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _EXTRA_FRAMES)
    # Nothing can have been compiled yet where the compiler is not loaded; loading it takes a second.
    try:
        with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext():
            for wrapper in wrappers:
                vars(wrapper)["forward"] = _plain_call(wrapper)
            yield
    finally:
        for wrapper, forward in wrappers.items():
            vars(wrapper)["forward"] = forward
        if sys.getrecursionlimit() == limit + _EXTRA_FRAMES:
            sys.setrecursionlimit(limit)


@contextmanager
def without_reentry() -> Iterator[None]:
    """Run what is wrapped in re-entrant activation checkpointing as if it were not: a graph that can be looked into."""
    checkpointing: Any = sys.modules.get("torch.utils.checkpoint")
    if checkpointing is None:
        yield
        return
    function = checkpointing.CheckpointFunction
    checkpointing.CheckpointFunction = _Unwrapped
    try:
        yield
    finally:
        checkpointing.CheckpointFunction = function


class _Unwrapped:
    """Stands in for the autograd function of re-entrant checkpointing."""

    @staticmethod
    def apply(function: Callable[..., Any], _keeps_random_state: bool, *args: Any) -> Any:
        return function(*args)


def compiled_modules(model: nn.Module) -> list[str]:
    """Return the names of the modules that `torch.compile` would run."""
    names = [name for name, _ in _compiled_wrappers(model)]
    # Reading the class attribute through each instance is quick where there is none.
    names += [name for name, module in named_modules(model) if module._compiled_call_impl is not None]
    return [name or "the model" for name in names]


def _compiled_wrappers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:
        return []
    return [(name, module) for name, module in named_modules(model) if isinstance(module, dynamo.OptimizedModule)]


def _plain_call(wrapper: nn.Module) -> Any:
    # The wrapper keeps the bound call of the time it was made, which goes past a later exchange of that function.
    return vars(wrapper)["_modules"]["_orig_mod"]
