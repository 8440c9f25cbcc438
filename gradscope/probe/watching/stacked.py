"""Norms of many small tensors of one shape in a few kernels: what each costs by itself is Python, not arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

MOST_ELEMENTS = 4096
"""Elements of a tensor that is small."""
_AT_ONCE = 1 << 18
"""Elements copied at once: 1 MB in float32 stays in the cache."""
_RUN = 1024
"""Elements summed in float32 at once: relative error below 5e-7, also for constants."""
_FEW = 2
"""So few tensors of a shape are not worth a copy."""


def is_small(tensor: torch.Tensor) -> bool:
    """Tell whether a readable tensor is one whose norm can be taken together with others."""
    if tensor.dtype is not torch.float32 or not tensor.is_cpu:
        return False
    count = tensor.numel()
    return 0 < count <= MOST_ELEMENTS and (count <= _RUN or count % _RUN == 0) and tensor.is_contiguous()


def groups(tensors: Sequence[torch.Tensor], chosen: Sequence[int]) -> Iterator[list[int]]:
    """Part some of the tensors, given by their numbers, into groups of one shape and of a size for the cache."""
    alike: dict[torch.Size, list[int]] = {}
    for i in chosen:
        alike.setdefault(tensors[i].shape, []).append(i)
    for shape, members in alike.items():
        if len(members) > _FEW:
            size = max(1, _AT_ONCE // shape.numel())
            yield from (members[start : start + size] for start in range(0, len(members), size))


def norms_of(stacked: torch.Tensor) -> list[float]:
    """Return the L2 norms of small tensors that are stacked along the first axis."""
    rows = stacked.view(len(stacked), -1)
    if rows.shape[1] > _RUN:
        rows = torch.linalg.vector_norm(rows.view(len(rows), -1, _RUN), dim=2)
    norms: list[float] = torch.linalg.vector_norm(rows, dim=1).tolist()
    return norms
