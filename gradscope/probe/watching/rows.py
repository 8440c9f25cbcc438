"""Numbers of one step, gathered on the device and brought over in one transfer at its end.

Norms are L2 over the whole tensor. They come out right for elements from 1e-38 to 1e38: a plain float32 sum of squares
is 0 below 1e-23 and inf above 1e19 per element, and drifts by 1e-5 on millions of elements.
On the CPU the squares are summed in float32 over short chunks at memory speed, the chunks in float64, and only a result
outside the range in which that is exact is taken again in float64. On other devices, where looking at a number
would stop the queue, everything is accumulated in float64 at once.

This is the innermost code of a watched step: hundreds of calls on tensors that may be tiny. It makes as few calls into
torch as it can.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradscope.probe.watching.dense import UnreadableError, dense, readable
from gradscope.probe.watching.sharded import Shard, Shards
from gradscope.probe.watching.stacked import groups, is_small, norms_of

Handle = int
"""What `norm`, `dot`, ... return: the position of the number in what `read` returns."""

Look = Callable[[Sequence[int], torch.Tensor], None]
"""Is shown one tensor as it is, or several of one shape stacked, with their numbers."""

_CHUNK = 1024
"""Elements summed in float32 at once: relative error below 5e-7, and vector kernels are at full speed."""
_SMALL = 4096
"""Up to this many elements one float32 inner product is good to 5e-7, and four calls cheaper."""
_DOT_CHUNK = 65536
"""Elements of an inner product summed in float32 at once: 2e-7 of the norms' product off, 1e-5 for constants."""
_SAFE_RMS = 1e-16
"""Squares of elements below 1e-19 are lost in float32; above this root mean square they cannot matter (< 1e-6)."""
_SAFE_NORM = 1e18
"""Sums of squares above 3e38 overflow; below this norm none did."""
_SAFE_PRODUCT = (1e-28, 1e37)
"""Outside of these an inner product in float32 may have lost terms to underflow, or overflowed."""


class Rows:
    """The numbers of one step.

    Every method returns a handle, or None where the tensor cannot be read (`unseen` then counts the reason).

    Args:
        host_branches: Whether host code may look at numbers on the CPU as it goes; False forces the path of devices
            whose numbers arrive later.

    Example:
        >>> rows = Rows()
        >>> handle = rows.norm(torch.full((4,), 1e-30))
        >>> round(rows.read()[handle] * 1e30, 6)
        2.0
    """

    def __init__(self, *, host_branches: bool = True) -> None:
        self.unseen: Counter[str] = Counter()
        self._values: list[float | torch.Tensor] = []
        self._shards = Shards()
        self._host_branches = host_branches
        self._taken: dict[int, tuple[weakref.ref[torch.Tensor], int, Handle]] = {}
        """By address: tensors (as long as they live) whose norm is known, and their version then."""

    def norm(self, tensor: torch.Tensor) -> Handle | None:
        """Take the L2 norm of a tensor of any layout and number type; global where it is sharded over ranks."""
        if not readable(tensor):
            return self._guarded(lambda local: self._norm(local[0]), [tensor], self._shards.square_sum)
        if tensor.is_inference():
            return self._store(self._norm(tensor))
        # A residual sum is a module's output, a term of the next sum and a station of the stream; its gradient as well.
        address, version = tensor.data_ptr(), tensor._version
        known = self._taken.get(address)
        if known is not None:
            other = known[0]()
            if other is not None and known[1] == version == other._version and _alike(tensor, other):
                return known[2]
        handle = len(self._values)
        self._values.append(self._norm(tensor.detach() if tensor.requires_grad else tensor))
        self._taken[address] = (weakref.ref(tensor), version, handle)
        return handle

    def norms(self, tensors: Sequence[torch.Tensor], look: Look | None = None) -> list[Handle | None]:
        """Take the norms of many tensors: of those on another device than the CPU, and of small ones, together.

        Args:
            tensors: The tensors.
            look: Is shown every tensor that can be read, while it is in the cache.
        """
        handles: list[Handle | None] = [None] * len(tensors)
        plain = [i for i, tensor in enumerate(tensors) if readable(tensor)]
        remote = [i for i in plain if not tensors[i].is_cpu]
        if remote:
            many = torch._foreach_norm([tensors[i].detach() for i in remote], 2, dtype=torch.float64)
            for i, value in zip(remote, many, strict=True):
                handles[i] = self._store(value)
        small = [i for i in plain if is_small(tensors[i])] if self._host_branches else []
        for group in groups(tensors, small):
            with torch.no_grad():
                stacked = torch.stack([tensors[i] for i in group])
            count = tensors[group[0]].numel()
            norms = [_sure(norm, tensors[i], count) for i, norm in zip(group, norms_of(stacked), strict=True)]
            for handle, i in enumerate(group, len(self._values)):
                handles[i] = handle
            self._values += norms
            if look is not None:
                look(group, stacked)
        together = {i for i in small if handles[i] is not None}
        for i in plain:
            if handles[i] is None:
                handles[i] = self._store(self._norm(tensors[i].detach()))
            if look is not None and i not in together:
                look([i], tensors[i])
        if len(plain) < len(tensors):
            for i in {*range(len(tensors))}.difference(plain):
                handles[i] = self.norm(tensors[i])
        return handles

    def same(self, tensor: torch.Tensor, handle: Handle | None) -> Handle | None:
        """Take it that a tensor's norm is one that is known already; return the handle."""
        if handle is not None and readable(tensor) and not tensor.is_inference():
            self._taken[tensor.data_ptr()] = (weakref.ref(tensor), tensor._version, handle)
        return handle

    def dot(self, a: torch.Tensor, b: torch.Tensor) -> Handle | None:
        """Take the inner product of two tensors of one shape (the real part for complex ones)."""
        if readable(a) and readable(b):
            return self._store(self._dot(a.detach(), b.detach()))
        return self._guarded(lambda local: self._dot(local[0], local[1]), [a, b], self._shards.plain_sum)

    def absmax(self, tensor: torch.Tensor) -> Handle | None:
        """Take the largest absolute value."""
        return self._guarded(lambda local: _absmax(local[0]), [tensor], self._shards.maximum)

    def keep(self, value: torch.Tensor | float) -> Handle:
        """Keep one number that was computed elsewhere: a float, or a tensor of one element on any device."""
        return self._store(value.detach().reshape(()) if isinstance(value, torch.Tensor) else value)

    def read(self) -> list[float]:
        """Bring all numbers over, one transfer per device, and start afresh."""
        values: list[Any] = self._values
        self._values = []
        self._taken.clear()
        waiting: dict[torch.device, list[int]] = {}
        for i, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                waiting.setdefault(value.device, []).append(i)
        for indices in waiting.values():
            stacked = torch.stack([values[i].to(torch.float64) for i in indices])
            for i, number in zip(indices, stacked.tolist(), strict=True):
                values[i] = number
        self._shards.reduce(values)
        return values

    def _store(self, value: float | torch.Tensor) -> Handle:
        self._values.append(value)
        return len(self._values) - 1

    def _guarded(
        self,
        take: Callable[[list[torch.Tensor]], float | torch.Tensor],
        tensors: list[torch.Tensor],
        combine: Callable[[int, Shard], None],
    ) -> Handle | None:
        try:
            parts = [self._shards.localise(tensor) for tensor in tensors]
            if len({shard for _, shard in parts}) > 1:
                raise UnreadableError("an inner product of two differently sharded tensors")
            handle = self._store(take([dense(local) for local, _ in parts]))
        except UnreadableError as reason:
            self.unseen[str(reason)] += 1
            return None
        except (RuntimeError, NotImplementedError, TypeError) as error:
            first_line = (str(error) or repr(error)).splitlines()[0]
            self.unseen[f"{type(tensors[0]).__name__}: {first_line[:100]}"] += 1
            return None
        shard = parts[0][1]
        if shard is not None:
            combine(handle, shard)
        return handle

    def _norm(self, values: torch.Tensor) -> float | torch.Tensor:
        dtype = values.dtype
        if dtype is torch.float64 or not (self._host_branches and values.is_cpu):
            total: torch.Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
            return total
        count = values.numel()
        if count <= _SMALL and dtype is torch.float32 and values.is_contiguous():
            flat = values.view(-1)
            norm = math.sqrt(torch.dot(flat, flat).item())
        else:
            norm = _chunked_norm(values, count)
        return _sure(norm, values, count)

    def _dot(self, a: torch.Tensor, b: torch.Tensor) -> float | torch.Tensor:
        if self._host_branches and a.is_cpu and a.dtype is b.dtype is torch.float32:
            return _chunked_dot(a, b)
        return torch.sum(a.to(torch.float64) * b.to(torch.float64))


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors at one address hold the same numbers."""
    if one.dtype is not other.dtype or one.numel() != other.numel():
        return False
    same_order = one.shape == other.shape and one.stride() == other.stride()
    return same_order or (one.is_contiguous() and other.is_contiguous())


def flatten(values: torch.Tensor) -> torch.Tensor | None:
    """View a dense tensor of any stride order as one row (in memory order), None where it has gaps or overlaps."""
    if values.is_contiguous():
        return values.view(-1)
    if torch.ops.aten.is_non_overlapping_and_dense(values):
        return values.as_strided((values.numel(),), (1,))
    return None


def _sure(norm: float, values: torch.Tensor, count: int) -> float:
    """Return a norm that was taken in float32, taken again in float64 where squares were lost or overflowed."""
    if _SAFE_RMS * math.sqrt(count) < norm < _SAFE_NORM or norm != norm:  # noqa: PLR0124 - not a number
        return norm
    if not bool(values.any()):
        return 0.0
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))


def _chunked_norm(values: torch.Tensor, count: int) -> float:
    """Sum float32 squares in chunks, the few sums (in float64 where they are many) in a second pass."""
    wide = torch.float32 if values.dtype is not torch.float32 else None
    flat = flatten(values)
    if flat is None:
        return float(torch.linalg.vector_norm(values, dtype=torch.float64))
    if count <= _SMALL:
        return float(torch.linalg.vector_norm(flat, dtype=wide))
    rest = count % _CHUNK
    whole = flat[: count - rest] if rest else flat
    chunks = torch.linalg.vector_norm(whole.view(-1, _CHUNK), dim=1, dtype=wide)
    if count > _SMALL * _CHUNK:
        chunks = chunks.to(torch.float64)
    square = torch.dot(chunks, chunks).item()
    if rest:
        square += torch.linalg.vector_norm(flat[count - rest :], dtype=wide).item() ** 2
    return math.sqrt(square)


def _chunked_dot(a: torch.Tensor, b: torch.Tensor) -> float:
    """Multiply and sum in float32 in chunks, the chunks in float64; all in float64 where that may have lost terms."""
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    if flat_a.numel() <= _DOT_CHUNK:
        total = torch.dot(flat_a, flat_b).item()
    else:
        pairs = zip(torch.split(flat_a, _DOT_CHUNK), torch.split(flat_b, _DOT_CHUNK), strict=True)
        total = sum(torch.dot(x, y).item() for x, y in pairs)
    if _SAFE_PRODUCT[0] < abs(total) < _SAFE_PRODUCT[1] or math.isnan(total):
        return total
    return float(torch.dot(flat_a.to(torch.float64), flat_b.to(torch.float64)))


def _absmax(values: torch.Tensor) -> float | torch.Tensor:
    if values.numel() == 0:
        return 0.0
    # One vectorised pass; the infinity norm takes 20 times as long on the CPU.
    return torch.stack(torch.aminmax(values)).abs().amax()
