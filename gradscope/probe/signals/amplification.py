"""Weight-noise amplification: how much the output moves under 1 % noise on every weight (Admin; Liu 2020).

|out(W + noise) - out(W)| / |out(W)| / 1 %, with noise of 1 % of each weight tensor's root mean square. Unlike gradient
norms it shows the learning rate a network tolerates: see `gradscope experiment placement`.

Cost: deep level; two forwards on a quarter of the batch, and one copy of the parameters while they last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gradscope.probe.restore import RandomState
from gradscope.probe.signals.observer import first_tensor

NOISE_SHARE = 0.01
"""Noise per weight as a share of the tensor's root mean square (docs/calibration.md)."""


def amplification(model: nn.Module, forward: Callable[[], Any], generator: torch.Generator) -> float | None:
    """Measure the amplification of weight noise.

    Args:
        model: The model; its parameters are changed and put back bitwise.
        forward: Runs it on the sub-batch; called twice from the same random state.
        generator: Draws the noise, on the CPU.

    Returns:
        The ratio, None where the output has no floating tensor or is zero.
    """
    state = RandomState()
    with torch.no_grad():
        before = first_tensor(forward())
        if before is None:
            return None
        before = before.detach().clone()
        saved = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
        try:
            for parameter, _ in saved:
                _disturb(parameter, generator)
            state.restore()
            after = first_tensor(forward())
        finally:
            for parameter, value in saved:
                parameter.data.copy_(value)
    if after is None:
        return None
    moved = float(torch.linalg.vector_norm((after - before).to(torch.float64)))
    norm = float(torch.linalg.vector_norm(before.to(torch.float64)))
    ratio = moved / norm / NOISE_SHARE if norm > 0 else math.nan
    return ratio if math.isfinite(ratio) else None


def _disturb(parameter: Tensor, generator: torch.Generator) -> None:
    if not parameter.is_floating_point() or parameter.numel() == 0:
        return
    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter.device)
    rms = parameter.to(torch.float32).square().mean().sqrt()
    parameter.data.add_((NOISE_SHARE * rms * noise).to(parameter.dtype))
