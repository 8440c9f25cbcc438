"""The factor by which a GradScaler multiplied the loss, so that gradients can be told without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler

_original: Callable[..., Any] = GradScaler.scale
_watching: list[LossScale] = []


class LossScale:
    """Notices the scaler in use while it is active.

    Attributes:
        scale: The scale last applied, a tensor on the scaler's device; None where none was.
        loss: What it was applied to, where that was one number: scaled it may be infinite, and its gradients right.
    """

    def __init__(self) -> None:
        self.scale: torch.Tensor | None = None
        self.loss: torch.Tensor | None = None

    def start(self) -> None:
        """Begin to notice."""
        global _original  # noqa: PLW0603 - the class of all scalers is global state as well
        if not _watching:
            _original = GradScaler.scale
            GradScaler.scale = _noticed  # type: ignore[method-assign]
        _watching.append(self)

    def stop(self) -> None:
        """Stop noticing."""
        _watching[:] = [other for other in _watching if other is not self]
        if not _watching and GradScaler.scale is _noticed:
            GradScaler.scale = _original  # type: ignore[method-assign]


def _noticed(self: GradScaler, outputs: Any) -> Any:
    scaled = _original(self, outputs)
    current = self._scale
    if current is not None and self.is_enabled():
        single = isinstance(outputs, torch.Tensor) and outputs.numel() == 1
        for watching in _watching:
            watching.scale = current.detach().clone()  # the scaler changes it in place after the step
            watching.loss = outputs.detach() if single else None
    return scaled
