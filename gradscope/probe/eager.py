"""What has to hold around a watched step: compiled code runs eagerly, and the stack is deep enough for our frames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

_EXTRA_FRAMES = 200
"""Frames that our own functions may need on top of the deepest frame of the model."""


@contextmanager
def eagerly() -> Iterator[None]:
    """Run everything that was compiled with `torch.compile` eagerly, and allow a few more frames."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _EXTRA_FRAMES)
    # Nothing can have been compiled yet where the compiler is not loaded; loading it takes a second.
    try:
        with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext():
            yield
    finally:
        if sys.getrecursionlimit() == limit + _EXTRA_FRAMES:
            sys.setrecursionlimit(limit)


def compiled_modules(model: nn.Module) -> list[str]:
    """Return the names of the modules that `torch.compile` would run."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    wrapper = getattr(dynamo, "OptimizedModule", ()) if dynamo is not None else ()
    return [
        name or "the model"
        for name, module in model.named_modules()
        if isinstance(module, wrapper) or getattr(module, "_compiled_call_impl", None) is not None
    ]
