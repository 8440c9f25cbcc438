"""Jacobian anisotropy kappa_J: how few directions carry the gradient from the end of the stream back to its start.

J is the Jacobian of the stream's end (N numbers a sample) with respect to its start (N_0 numbers). For a cotangent v
uniform on the sphere in R^N the energy q = |J^T v|^2 has

    Var q / (E q)^2 = 2 / (N + 2) * (N / PR - 1),        PR = (sum s_i^2)^2 / sum s_i^4

with s_i the singular values of J, PR their participation ratio (variance of a quadratic form on the sphere). Hence

    kappa_J = N / PR = 1 + (N + 2) / 2 * Var q / (E q)^2

which is 1 for an isometry and N where one direction carries everything. With N_0 < N the rank is at most N_0 and N / PR
at least N / N_0 even for an isometry; kappa_J is therefore normalised by the rank that is possible, min(N, N_0) / PR.

Samples. One backward pass with independent cotangents on all samples serves all of them: q is taken at each sample's
start, N and N_0 are numbers per sample, and kappa_J is averaged over samples. That is exact where samples do not
depend on each other. Where they do (batch normalisation), a sample's q collects the cotangents of others as well; the
map is then the one from all ends to this start, and kappa_J comes out at most 1 too large.

Sampling error: with K cotangents on S samples, kappa_J - 1 is known to about sqrt(2 / (K S)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from gradscope.probe.uncompiled import pull_back

NUM_COTANGENTS = 16
"""K: sampling error of kappa_J - 1 is 35 % on one sample, 12 % on eight."""
FEWEST_COTANGENTS = 8
"""K for batches of one or two samples, which cannot be cut smaller: the error is 50 % then."""
MAX_SAMPLES = 8
"""Samples in the sub-batch, where the batch holds four times as many; see ``sub_batch_size``."""
_BATCH_SHARE = 4
"""Part of the batch, 1 in so many samples, that the sub-batch may be: it bounds the cost of the extra passes."""


@dataclass(frozen=True)
class StreamEnd:
    """One end of the stream in a live graph: the gradient edge taken when the tensor was made, and its form.

    The edge, unlike the tensor, still means the same place after the tensor has been changed in place. `weights` are
    those of its rows, where some are next to nothing.
    """

    edge: GradientEdge
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    weights: Tensor | None = None

    @classmethod
    def of(cls, tensor: Tensor, weights: Tensor | None = None) -> StreamEnd:
        """Take the place of a tensor that requires grad, as it is now."""
        return cls(get_gradient_edge(tensor), tuple(tensor.shape), tensor.dtype, tensor.device, weights)

    @property
    def size(self) -> float:
        """Elements, those of rows with less than the full weight left out."""
        full = 1.0 if self.weights is None else float((self.weights == 1.0).double().mean())
        return math.prod(self.shape) * full


@dataclass(frozen=True)
class Anisotropy:
    """What was found.

    Attributes:
        kappa: kappa_J, 1 for an isometry; None where it is not defined.
        gain: Mean squared singular value over the min(N, N_0) possible ones.
        num_samples: Samples that kappa_J was averaged over.
        num_cotangents: K, the number of backward passes from the stream's end to its start that were taken.
        coupling: Share of the energy of one sample's cotangent that comes back at the starts of others: 0 where samples
            do not depend on each other; None for one sample.
        reason: Why kappa is None.
    """

    kappa: float | None
    gain: float | None
    num_samples: int
    num_cotangents: int
    coupling: float | None = None
    reason: str = ""

    @property
    def relative_error(self) -> float:
        """Standard error of kappa_J - 1, relative to it."""
        return math.sqrt(2 / (self.num_cotangents * self.num_samples))


def sub_batch_size(batch_size: int) -> int:
    """Return how many samples to measure.

    With K = 16, a third of a step for a pass to the start, and a quarter of the batch, the measurement costs about
    16 / 3 / 4 = 1.3 plain steps; for batches below four see ``num_cotangents``.
    """
    return max(1, min(MAX_SAMPLES, batch_size // _BATCH_SHARE))


def num_cotangents(batch_size: int) -> int:
    """Return K for a batch: fewer where the sub-batch is a large part of it, so that it costs below three steps."""
    affordable = 1.5 * 3 * batch_size / sub_batch_size(batch_size)  # for 1.5 steps, a pass being a third of a step
    return int(min(NUM_COTANGENTS, max(FEWEST_COTANGENTS, affordable)))


def anisotropy(
    start: StreamEnd, end: StreamEnd, generator: torch.Generator, num_draws: int = NUM_COTANGENTS
) -> Anisotropy:
    """Measure kappa_J between two places of a live graph, samples on axis 0 of both.

    The graph is kept; no parameter receives a gradient; random numbers come from ``generator`` (on the CPU) alone.

    Example:
        >>> x = torch.randn(4, 8, requires_grad=True)
        >>> y = 3 * x
        >>> found = anisotropy(StreamEnd.of(x), StreamEnd.of(y), torch.Generator().manual_seed(0))
        >>> round(found.kappa, 6), round(found.gain, 4)
        (1.0, 9.0)
    """
    if start.size == 0:
        return Anisotropy(None, None, 0, 0, reason="the stream starts at next to nothing")
    # Where the stream folds its batch (windows, patches as samples) all of it is one sample.
    num_samples = end.shape[0] if end.shape and start.shape[:1] == end.shape[:1] else 1
    cotangents = (_cotangent(end, generator, num_samples) for _ in range(num_draws))
    q_KS = torch.stack([_energies(start, end, v, num_samples) for v in cotangents])
    size_end, size_start = math.prod(end.shape) / num_samples, start.size / num_samples
    kappas, gain = _kappas(q_KS, size_end, size_start)
    reason = ""
    if not math.isfinite(gain):
        reason = "the gradient overflows on its way to the start of the stream"
    elif gain == 0 or not kappas:
        reason = "no gradient reaches the start of the stream"
    if reason:
        return Anisotropy(None, None, num_samples, num_draws, reason=reason)
    coupling = _coupling(start, end, generator, num_samples) if num_samples > 1 else None
    return Anisotropy(sum(kappas) / len(kappas), gain, num_samples, num_draws, coupling)


def kappa_from_energies(q_K: Tensor, size_end: float, size_start: float) -> float:
    """Return kappa_J of one sample from K energies |J^T v|^2 of random unit cotangents.

    1 + (N + 2) / 2 * Var q / Mean^2 q (unbiased variance), normalised to the possible rank; see the top of this file.
    """
    variance, mean = torch.var_mean(q_K.to(torch.float64))
    relative = float(variance / mean**2)
    return (1 + (size_end + 2) / 2 * relative) * min(1.0, size_start / size_end)


def _kappas(q_KS: Tensor, size_end: float, size_start: float) -> tuple[list[float], float]:
    """Return kappa_J of every sample that a gradient reaches, and the mean squared singular value over samples."""
    means = q_KS.mean(0)
    reached = [i for i, mean in enumerate(means.tolist()) if mean > 0 and math.isfinite(mean)]
    kappas = [kappa_from_energies(q_KS[:, i], size_end, size_start) for i in reached]
    return kappas, float(means.mean()) * max(1.0, size_end / size_start)


def _cotangent(end: StreamEnd, generator: torch.Generator, num_samples: int) -> Tensor:
    """Draw cotangents, one a row: uniform on the sphere of radius sqrt(N) (root mean square 1, for half types)."""
    v = torch.randn(num_samples, math.prod(end.shape) // num_samples, generator=generator, dtype=torch.float64)
    v *= math.sqrt(v.shape[1]) / torch.linalg.vector_norm(v, dim=1, keepdim=True)
    return v.reshape(end.shape).to(device=end.device, dtype=end.dtype)


def _coupling(start: StreamEnd, end: StreamEnd, generator: torch.Generator, num_samples: int) -> float | None:
    """Push a cotangent of the first sample alone back, and see what share of it arrives at the other samples."""
    cotangent = _cotangent(end, generator, num_samples)
    cotangent[1:] = 0
    q_S = _energies(start, end, cotangent, num_samples)
    total = float(q_S.sum())
    return float(q_S[1:].sum()) / total if total > 0 and math.isfinite(total) else None


def _energies(start: StreamEnd, end: StreamEnd, cotangent: Tensor, num_samples: int) -> Tensor:
    """Return |J^T v|^2 / |v|^2 at the start of each sample, in float64 on the CPU."""
    grad = pull_back(end.edge, start.edge, cotangent)
    if grad is None:
        return torch.zeros(num_samples, dtype=torch.float64)
    if start.weights is not None:
        grad = grad * start.weights
    pulled = torch.linalg.vector_norm(grad.detach().reshape(num_samples, -1), dim=1, dtype=torch.float64)
    energies: Tensor = pulled**2 / (cotangent.numel() // num_samples)  # |v|^2 is the number of its elements
    return energies.cpu()
