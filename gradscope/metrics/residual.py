"""Residual additions y = alpha x + f(x): how the two summands share the activation and the gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gradscope.metrics.columns import ratio


@dataclass(frozen=True)
class Site:
    """A residual addition at one step, with its static row.

    Attributes:
        row: Its row in the site table.
        name: Its name.
        module: The module whose forward executes it.
        call: That module's call.
        kind: identity, scaled, gated, projection or concat.
        placement: pre, post, sandwich, output or none.
        normalised: Whether the branch normalises what it reads or gives.
        branches: Names of the branch's modules.
        skip_scale: Constant factor on the skip, None where unknown.
        branch_scale: Constant factor on the branch, None where unknown.
        on_stream: Whether it lies on the stream.
        counted: False for a concatenation.
        file: User's source file of the addition.
        line: Line in it.
        skip_norm: ||alpha x||.
        branch_norm: ||f(x)||, as added.
        out_norm: ||alpha x + f(x)||.
        grad_norm: ||g_y|| at the sum.
        skip_grad_norm: What reaches x through the skip.
        branch_grad_norm: What reaches x through the branch.
        cosine: Cosine between those two gradients.
    """

    row: int
    name: str
    module: str
    call: int
    kind: str
    placement: str
    normalised: bool
    branches: tuple[str, ...]
    skip_scale: float | None
    branch_scale: float | None
    on_stream: bool
    counted: bool
    file: str | None
    line: int | None
    skip_norm: float | None = None
    branch_norm: float | None = None
    out_norm: float | None = None
    grad_norm: float | None = None
    skip_grad_norm: float | None = None
    branch_grad_norm: float | None = None
    cosine: float | None = None

    @property
    def forward_ratio(self) -> float | None:
        """r_f = ||f(x)|| / ||alpha x||. Pre-LN: sqrt(c / (1 + c l)); about 1 in the first Peri-LN block."""
        return ratio(self.branch_norm, self.skip_norm)

    @property
    def backward_ratio(self) -> float | None:
        """r_b = ||J_f^T g|| / ||alpha g||; equals r_f for a homogeneous branch without token mixing."""
        return ratio(self.branch_grad_norm, self.skip_grad_norm)

    @property
    def branch_energy_share(self) -> float | None:
        """r_b^2 / (1 + r_b^2): the share of the gradient energy that passes through the branch (cosine near 0)."""
        back = self.backward_ratio
        return None if back is None else 1 / (1 + 1 / back**2) if back > 1.0 else back**2 / (1 + back**2)

    @property
    def remaining_gradient(self) -> float | None:
        """||g_skip + g_branch|| / ||g_skip|| = sqrt(1 + r^2 + 2 r c): below 1 the branch cancels the skip."""
        if self.backward_ratio is None or self.cosine is None:
            return None
        return math.sqrt(max(1 + self.backward_ratio**2 + 2 * self.backward_ratio * self.cosine, 0.0))


def effective_path_length(sites: Iterable[Site]) -> float | None:
    """Return the mean number of branches that a unit of gradient energy passes: sum of r_b^2 / (1 + r_b^2).

    The energy over paths is binomial (Veit 2016 counts them; measured 4.00 where a^2 L / (1 + a^2) = 4, and about ln L
    in a Pre-LN stack). Exact where the cosines are near zero.
    """
    shares = [site.branch_energy_share for site in sites]
    known = [share for share in shares if share is not None]
    return sum(known) if known else None
