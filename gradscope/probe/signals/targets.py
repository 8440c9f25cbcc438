"""How far the targets of a regression lie from the outputs: an optimizer whose steps are bounded has to walk there.

Cost: default level; two norms per call of a loss function of torch, on at most 65,536 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradscope.probe.signals.observer import CallKey, Observer

MAX_ELEMENTS = 65_536
"""Elements looked at of the output and of the targets."""


class Targets(Observer):
    """target_to_output of the losses that measure a distance."""

    functions: frozenset[Callable[..., Any]] = frozenset({F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss})

    def function(  # noqa: D102
        self, call: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        given = dict(zip(("input", "target"), args, strict=False)) | kwargs
        output, target = given.get("input"), given.get("target")
        if not isinstance(output, Tensor) or not isinstance(target, Tensor) or output.shape != target.shape:
            return
        if output.numel() > 0 and output.is_floating_point() and target.is_floating_point():
            sizes = torch.stack([_size(target), _size(output)])
            self.readings.add_derived("target_to_output", call, sizes, _ratio)


def _size(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x.detach().reshape(-1)[:MAX_ELEMENTS], dtype=torch.float64)
    return norm


def _ratio(sizes: list[float]) -> float | None:
    target, output = sizes
    return target / output if output > 0.0 else None
