"""A loss chosen by the shapes and types of the output and of the batch's own target.

Shape legend: B batch, C classes, T tokens or any further axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Pair = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def chosen_loss(output: Any, target: Any) -> tuple[str, Pair] | None:
    """Return a loss of (output, target) and its name, or None where their shapes fit no usual one."""
    if not isinstance(output, torch.Tensor) or not isinstance(target, torch.Tensor) or not output.is_floating_point():
        return None
    if not target.is_floating_point() and target.dtype is not torch.bool:
        return _for_classes(output, target)
    if _same_shape(output, target):
        if bool(((target == 0) | (target == 1)).all()):
            return "binary cross-entropy with logits", lambda o, t: F.binary_cross_entropy_with_logits(
                o, t.reshape(o.shape).to(o.dtype)
            )
        return "mean squared error", lambda o, t: F.mse_loss(o, t.reshape(o.shape).to(o.dtype))
    return None


def cross_entropy_last(output_BTC: torch.Tensor, target_BT: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of logits whose classes lie on the last axis."""
    return F.cross_entropy(output_BTC.reshape(-1, output_BTC.shape[-1]), target_BT.reshape(-1).long())


def _for_classes(output: torch.Tensor, target: torch.Tensor) -> tuple[str, Pair] | None:
    if output.dim() > 1 and target.shape == output.shape[:-1] and _fits(target, output.shape[-1]):
        return "cross-entropy", cross_entropy_last
    if output.dim() > 2 and target.shape == output.shape[:1] + output.shape[2:] and _fits(target, output.shape[1]):  # noqa: PLR2004
        return "cross-entropy over axis 1", lambda o, t: F.cross_entropy(o, t.long())
    if output.dim() == 2 and target.shape == (output.shape[0], 1) and _fits(target, output.shape[1]):  # noqa: PLR2004  # B x 1
        return "cross-entropy", cross_entropy_last
    if _same_shape(output, target):
        if int(target.min()) >= 0 and int(target.max()) <= 1:
            return "binary cross-entropy with logits", lambda o, t: F.binary_cross_entropy_with_logits(
                o, t.reshape(o.shape).to(o.dtype)
            )
        return "mean squared error", lambda o, t: F.mse_loss(o, t.reshape(o.shape).to(o.dtype))
    return None


def _fits(target: torch.Tensor, num_classes: int) -> bool:
    """Whether targets are class numbers (-100 marks those to ignore)."""
    known = target[target != -100]  # noqa: PLR2004  # torch's ignore_index
    return num_classes > 1 and (not known.numel() or (int(known.min()) >= 0 and int(known.max()) < num_classes))


def _same_shape(output: torch.Tensor, target: torch.Tensor) -> bool:
    return output.numel() == target.numel() and output.shape[:1] == target.shape[:1]
