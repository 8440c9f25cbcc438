"""Jacobian anisotropy kappa_J: how few directions carry the gradient from the end of the stream back to its start.

J is the Jacobian of the stream's end (N numbers a sample) with respect to its start (N_0 numbers). For a cotangent v
uniform on the sphere in R^N the energy q = |J^T v|^2 has

    Var q / (E q)^2 = 2 / (N + 2) * (N / PR - 1),        PR = (sum s_i^2)^2 / sum s_i^4

with s_i the singular values of J, PR their participation ratio (variance of a quadratic form on the sphere). Hence

    kappa_J = N / PR = 1 + (N + 2) / 2 * Var q / (E q)^2

which is 1 for an isometry and N where one direction carries everything. With N_0 < N the rank is at most N_0 and N / PR
at least N / N_0 even for an isometry; kappa_J is therefore normalised by the rank that is possible, min(N, N_0) / PR.

Samples. Where a sample's gradient depends on that sample's cotangent alone, every sample has a Jacobian of its own, one
backward pass serves all of them, and kappa_J is averaged. Where samples are coupled (batch normalisation, attention
along the batch), which a cotangent on one half of the samples shows in the other half's gradient, the whole sub-batch
counts as one sample: one unit cotangent over B N numbers.

Sampling error: with K cotangents on S independent samples, kappa_J - 1 is known to about sqrt(2 / (K S)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

NUM_COTANGENTS = 16
"""K: sampling error of kappa_J - 1 is 35 % on one sample, 12 % on eight (SCIENCE 0.3 uses 16 to 32)."""
MAX_SAMPLES = 8
"""Samples in the sub-batch, where the batch holds four times as many; see ``sub_batch_size``."""
_BATCH_SHARE = 4
_COUPLED_SHARE = 1e-6
"""Energy in the other half's gradient, relative to one's own, above which samples count as coupled; rounding noise
of float32 stays below 1e-12."""


@dataclass(frozen=True)
class StreamEnd:
    """One end of the stream in a live graph: the gradient edge taken when the tensor was made, and its form.

    The edge, unlike the tensor, still means the same place after the tensor has been changed in place.
    """

    edge: GradientEdge
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> StreamEnd:
        """Take the place of a tensor that requires grad, as it is now."""
        return cls(get_gradient_edge(tensor), tuple(tensor.shape), tensor.dtype, tensor.device)

    @classmethod
    def of_node(cls, node: Node, output_nr: int) -> StreamEnd:
        """Take output number ``output_nr`` of a node of the graph."""
        form = node._input_metadata[output_nr]
        return cls(GradientEdge(node, output_nr), tuple(int(n) for n in form.shape), form.dtype, form.device)


@dataclass(frozen=True)
class Anisotropy:
    """What was found.

    Attributes:
        kappa: kappa_J, 1 for an isometry; None where it is not defined.
        gain: Mean squared singular value over the min(N, N_0) possible ones.
        coupled: Whether the samples depend on each other.
        num_cotangents: K.
        num_backwards: Backward passes from the stream's end to its start that were taken.
        reason: Why kappa is None.
    """

    kappa: float | None
    gain: float | None
    coupled: bool
    num_cotangents: int
    num_backwards: int
    reason: str = ""


def sub_batch_size(batch_size: int) -> int:
    """Return how many samples to measure.

    With K = 16, a third of a step for a pass to the start, and a quarter of the batch, the measurement costs about
    16 / 3 / 4 = 1.3 plain steps; it costs more only for batches below four.
    """
    return max(1, min(MAX_SAMPLES, batch_size // _BATCH_SHARE))


def anisotropy(
    start: StreamEnd, end: StreamEnd, generator: torch.Generator, num_cotangents: int = NUM_COTANGENTS
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
    coupled = _samples_coupled(start, end, generator)
    energies = [_energies(start, end, _cotangent(end, generator, coupled), coupled) for _ in range(num_cotangents)]
    q_KS = torch.stack(energies)
    num_passes = num_cotangents + (1 if end.shape[0] > 1 else 0)
    num_samples = 1 if coupled else end.shape[0]
    size_end, size_start = math.prod(end.shape) / num_samples, math.prod(start.shape) / num_samples
    kappas, gain = _kappas(q_KS, size_end, size_start)
    reason = ""
    if not math.isfinite(gain):
        reason = "the gradient overflows on its way to the start of the stream"
    elif gain == 0 or not kappas:
        reason = "no gradient reaches the start of the stream"
    if reason:
        return Anisotropy(None, None, coupled, num_cotangents, num_passes, reason)
    return Anisotropy(sum(kappas) / len(kappas), gain, coupled, num_cotangents, num_passes)


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


def _samples_coupled(start: StreamEnd, end: StreamEnd, generator: torch.Generator) -> bool:
    """Push a cotangent on the first half of the samples; a gradient in the second half means that they are coupled."""
    batch = end.shape[0]
    if start.shape[0] != batch:
        return True
    if batch == 1:
        return False
    cotangent = _cotangent(end, generator, coupled=False)
    cotangent[batch // 2 :] = 0
    energies = _energies(start, end, cotangent, coupled=False)
    own, other = float(energies[: batch // 2].sum()), float(energies[batch // 2 :].sum())
    return other > _COUPLED_SHARE * own


def _cotangent(end: StreamEnd, generator: torch.Generator, coupled: bool) -> Tensor:
    """Draw a cotangent: uniform on the sphere of radius sqrt(N) (root mean square 1, so that half types hold it)."""
    rows = 1 if coupled else end.shape[0]
    v = torch.randn(rows, math.prod(end.shape) // rows, generator=generator, dtype=torch.float64)
    v *= math.sqrt(v.shape[1]) / torch.linalg.vector_norm(v, dim=1, keepdim=True)
    return v.reshape(end.shape).to(device=end.device, dtype=end.dtype)


def _energies(start: StreamEnd, end: StreamEnd, cotangent: Tensor, coupled: bool) -> Tensor:
    """Return |J^T v|^2 / |v|^2 per sample (one number where they are coupled), in float64 on the CPU."""
    (grad,) = torch.autograd.grad([end.edge], [start.edge], [cotangent], retain_graph=True, allow_unused=True)
    rows = 1 if coupled else end.shape[0]
    if grad is None:
        return torch.zeros(rows, dtype=torch.float64)
    pulled = torch.linalg.vector_norm(grad.detach().reshape(rows, -1), dim=1, dtype=torch.float64)
    energies: Tensor = pulled**2 / (cotangent.numel() // rows)  # |v|^2 is the number of its elements
    return energies.cpu()
