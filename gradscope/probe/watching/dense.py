"""One readable, real, dense tensor with the same norm, whatever kind of tensor a model uses."""

from __future__ import annotations

import torch

_NARROW_FLOATS = frozenset(
    dtype for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if (dtype := getattr(torch, name, None)) is not None
)
_WIDE_FLOATS = frozenset((torch.float32, torch.float64, torch.bfloat16, torch.float16))
_ORDINARY = frozenset((torch.Tensor, torch.nn.Parameter))


class UnreadableError(Exception):
    """A tensor whose values cannot be read; the message says why."""


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor as a real floating dense one, detached, without copying where that is possible.

    Raises:
        UnreadableError: It has no values (meta, fake), they must not be read (inside vmap), or they are not numbers.
    """
    tensor = tensor.detach()
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise UnreadableError("values inside a functorch transform (vmap, grad, jvp)")
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        raise UnreadableError("tensors without values (meta device)")
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_nested:
        return dense(tensor.values() if tensor.layout is torch.jagged else tensor.contiguous().values())
    if tensor.layout is not torch.strided:
        return dense(_values_of(tensor))
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype in _NARROW_FLOATS:
        return tensor.to(torch.float32)
    if not tensor.is_floating_point():
        raise UnreadableError(f"tensors of dtype {str(tensor.dtype).removeprefix('torch.')}")
    return tensor.resolve_neg()


def readable(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is an ordinary floating one: strided, real, on a device, of no special class."""
    return (
        type(tensor) in _ORDINARY
        and tensor.dtype in _WIDE_FLOATS
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_nested
        and not tensor.is_neg()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _values_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is torch.sparse_coo:
        return tensor.coalesce().values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return tensor.values()
    return tensor.to_dense()  # mkldnn
