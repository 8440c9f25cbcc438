"""Shattered gradients: cosine of input gradients at x and at x + 5 % noise, under one fixed readout (Balduzzi 2017).

Near 1 where the gradient varies smoothly with the input; near 0 where it is white noise, as in deep plain ReLU nets.

Cost: deep level; two forwards and two backwards on a quarter of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradscope.probe.restore import RandomState
from gradscope.probe.signals.observer import first_tensor
from gradscope.probe.signals.subbatch import mapped

NOISE_SHARE = 0.05
"""Noise per input as a share of its root mean square (docs/calibration.md)."""


def shattering_cosine(forward: Callable[[Any], Any], batch: Any, generator: torch.Generator) -> float | None:
    """Measure the mean cosine, over samples, between the input gradients at x and nearby.

    Args:
        forward: Runs the model on a batch; called twice from the same random state.
        batch: The sub-batch; its floating tensors are the input x.
        generator: Draws noise and readout, on the CPU.

    Returns:
        The cosine, None where the input has no floating tensor or no gradient reaches it.
    """
    noises: list[Tensor] = []

    def noise(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        noises.append(torch.randn(x.shape, generator=generator, dtype=torch.float32).to(x))
        return x + NOISE_SHARE * x.to(torch.float32).square().mean().sqrt().to(x.dtype) * noises[-1]

    nearby = mapped(batch, noise)
    if not noises:
        return None
    state = RandomState()
    readout: list[Tensor] = []
    at_x = _input_gradient(forward, batch, readout, generator)
    state.restore()
    at_nearby = _input_gradient(forward, nearby, readout, generator)
    if at_x is None or at_nearby is None:
        return None
    return mean_row_cosine(at_x, at_nearby)


def mean_row_cosine(a_BN: Tensor, b_BN: Tensor) -> float | None:
    """Return the mean cosine between rows of the same number; rows of zero norm are left out."""
    dots = (a_BN * b_BN).sum(1)
    norms = torch.linalg.vector_norm(a_BN, dim=1) * torch.linalg.vector_norm(b_BN, dim=1)
    known = norms > 0
    return float((dots[known] / norms[known]).mean()) if bool(known.any()) else None


def _input_gradient(
    forward: Callable[[Any], Any], batch: Any, readout: list[Tensor], generator: torch.Generator
) -> Tensor | None:
    leaves: list[Tensor] = []

    def leaf(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        leaves.append(x.detach().clone().requires_grad_())
        return leaves[-1].clone()

    output = first_tensor(forward(mapped(batch, leaf)))
    if output is None or not output.requires_grad:
        return None
    if not readout:
        readout.append(torch.randn(output.shape, generator=generator, dtype=torch.float32).to(output))
    grads = torch.autograd.grad(output, leaves, readout[0], allow_unused=True)
    # Samples are rows where the tensors agree on their number; else the whole batch is one row.
    rows = leaves[0].shape[0] if leaves[0].dim() and len({x.shape[:1] for x in leaves}) == 1 else 1
    found = [grad.to(torch.float64).reshape(rows, -1) for grad in grads if grad is not None]
    return torch.cat(found, dim=1) if found else None
