"""Change what modules read and return, for as long as a remedy is tried."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Change = Callable[[torch.Tensor], torch.Tensor]


def change_output(module: nn.Module, change: Change, undo: ExitStack) -> None:
    """Apply a change to the first tensor a module returns."""

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if isinstance(output, torch.Tensor):
            return change(output)
        if isinstance(output, tuple) and output and isinstance(output[0], torch.Tensor):
            return (change(output[0]), *output[1:])
        return None

    undo.callback(module.register_forward_hook(hook).remove)


def change_input(module: nn.Module, change: Change, undo: ExitStack) -> None:
    """Apply a change to the first tensor a module is given, wherever else among its arguments the same tensor is."""

    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        first = next((value for value in (*args, *kwargs.values()) if _floating(value)), None)
        if first is None:
            return None
        changed = change(first)
        return (
            tuple(changed if value is first else value for value in args),
            {key: changed if value is first else value for key, value in kwargs.items()},
        )

    undo.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)


def normalised(x: torch.Tensor, *, channels_first: bool) -> torch.Tensor:
    """Normalise to mean 0 and variance 1, without gain or bias.

    Args:
        x: Features last, (…, D), or images, (B, C, …).
        channels_first: Whether they are images: each is normalised over its channels and pixels, tokens over D.
    """
    if channels_first and x.dim() > 2:  # noqa: PLR2004  samples and channels alone are vectors
        return F.group_norm(x, 1)
    return F.layer_norm(x, x.shape[-1:])


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
