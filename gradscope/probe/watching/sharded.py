"""Numbers of tensors that are sharded over ranks (DTensor, as FSDP2 uses): global, one packed reduction a step."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import torch


class Shard(NamedTuple):
    """The dimensions of a device mesh over which a tensor is split."""

    mesh: Any
    mesh_dims: tuple[int, ...]


class Shards:
    """Which of a step's numbers are only this rank's part, and how the parts combine."""

    def __init__(self) -> None:
        self._parts: dict[tuple[Shard, str], list[int]] = {}

    def localise(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Shard | None]:
        """Return this rank's part of a tensor and how it is split; an ordinary tensor is returned as it is."""
        if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter or not _is_dtensor(tensor):
            return tensor, None
        placements = tensor.placements  # type: ignore[attr-defined]
        if any(placement.is_partial() for placement in placements):
            return tensor.full_tensor(), None  # type: ignore[attr-defined]
        dims = tuple(i for i, placement in enumerate(placements) if not placement.is_replicate())
        local = tensor.to_local()  # type: ignore[attr-defined]
        return local, Shard(tensor.device_mesh, dims) if dims else None  # type: ignore[attr-defined]

    def square_sum(self, handle: int, shard: Shard) -> None:
        """The parts of this number combine as norms do."""
        self._parts.setdefault((shard, "square"), []).append(handle)

    def plain_sum(self, handle: int, shard: Shard) -> None:
        """The parts of this number add up."""
        self._parts.setdefault((shard, "sum"), []).append(handle)

    def maximum(self, handle: int, shard: Shard) -> None:
        """The largest part of this number counts."""
        self._parts.setdefault((shard, "max"), []).append(handle)

    def reduce(self, values: list[float]) -> None:
        """Combine the parts in place: one packed collective per mesh dimension and kind. All ranks must call it."""
        parts, self._parts = self._parts, {}
        for (shard, kind), handles in parts.items():
            local = [values[handle] for handle in handles]
            for handle, number in zip(handles, _combine(local, shard, kind), strict=True):
                values[handle] = number


def _combine(local: list[float], shard: Shard, kind: str) -> list[float]:
    import torch.distributed as dist

    # Norms are scaled by their largest part first, so that their squares neither vanish nor overflow.
    packed = torch.tensor(local, dtype=torch.float64, device=shard.mesh.device_type)
    if kind == "square":
        scale = packed.abs()
        _all_reduce(scale, shard, dist.ReduceOp.MAX)
        safe = torch.where((scale > 0) & torch.isfinite(scale), scale, torch.ones_like(scale))
        packed = (packed / safe) ** 2
        _all_reduce(packed, shard, dist.ReduceOp.SUM)
        packed = packed.sqrt() * safe
    else:
        _all_reduce(packed, shard, dist.ReduceOp.SUM if kind == "sum" else dist.ReduceOp.MAX)
    return [math.nan if math.isnan(number) else number for number in packed.tolist()]


def _all_reduce(packed: torch.Tensor, shard: Shard, operation: Any) -> None:
    import torch.distributed as dist

    for dim in shard.mesh_dims:
        dist.all_reduce(packed, operation, group=shard.mesh.get_group(dim))


def _is_dtensor(tensor: torch.Tensor) -> bool:
    # Without the module nobody can have made one; importing it costs a second.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)
