"""Which parts of a tensor a function without a graph gives back, told as autograd tells it of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

_DIM_AT = {"chunk": 2, "split": 2, "tensor_split": 2, "unsafe_chunk": 2, "unsafe_split": 2, "split_with_sizes": 2,
           "unbind": 1}  # fmt: skip
"""Where functions that cut a tensor into parts take the axis, among their arguments."""


class Taken(NamedTuple):
    """The operation that takes one part, and the numbers that it would have been given."""

    name: str
    saved: dict[str, Any]


def taken(name: str, args: Sequence[Any], kwargs: dict[str, Any], parts: Sequence[torch.Tensor]) -> list[Taken] | None:
    """Return what takes each of the parts that a call gave back, None where it gave back no parts of one axis.

    Example:
        >>> taken("chunk", (torch.zeros(2, 4), 2, -1), {}, torch.zeros(2, 4).chunk(2, -1))[1]
        Taken(name='Slice', saved={'dim': -1, 'start': 2, 'end': 4})
    """
    if name not in _DIM_AT:
        return None
    dim = kwargs.get("dim", dict(enumerate(args)).get(_DIM_AT[name], 0))
    if name == "unbind":
        return [Taken("Select", {"dim": dim, "index": i}) for i in range(len(parts))]
    found_parts, start = [], 0
    for part in parts:
        found_parts.append(Taken("Slice", {"dim": dim, "start": start, "end": start + part.shape[dim]}))
        start += part.shape[dim]
    return found_parts
