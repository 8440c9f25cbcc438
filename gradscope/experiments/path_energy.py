"""How long the paths are on which a gradient travels back through a stack of residual additions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Branch = Callable[[torch.Tensor], torch.Tensor]


def energies_by_length(branches: Sequence[Branch], x: torch.Tensor, end: torch.Tensor) -> list[float]:
    """Split the gradient at a stack's input by the number of branches on the way.

    The gradient before x + f(x) is the gradient after it, and that passed back through f: what has passed k branches
    so far has passed k or k + 1 before. Applied from the end to the start this sorts all 2^n paths by their length.

    Args:
        branches: The f of each x + f(x), in order.
        x: The stack's input.
        end: The gradient at its end.

    Returns:
        Squared norm of the part of the input's gradient that passed k branches, for k = 0 .. n.
    """
    inputs = [x.detach()]
    with torch.no_grad():
        for branch in branches:
            inputs.append(inputs[-1] + branch(inputs[-1]))
    parts = [end]
    for branch, entered in zip(reversed(branches), reversed(inputs[:-1]), strict=True):
        through = _pulled_back(branch, entered, parts)
        longer = [torch.zeros_like(end), *through]
        parts = [part + more for part, more in zip([*parts, torch.zeros_like(end)], longer, strict=True)]
    return [float(part.double().square().sum()) for part in parts]


def _pulled_back(branch: Branch, x: torch.Tensor, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    leaf = x.detach().requires_grad_()
    out = branch(leaf)
    return [torch.autograd.grad(out, leaf, gradient, retain_graph=True)[0] for gradient in gradients]


def mean_length(energies: Sequence[float]) -> float:
    """Mean number of branches on the way, weighted by energy."""
    return sum(length * energy for length, energy in enumerate(energies)) / sum(energies)
