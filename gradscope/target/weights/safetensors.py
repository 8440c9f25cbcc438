"""Read .safetensors without the library: eight bytes of length, a JSON header, raw little-endian numbers.

Source: the format's own description, https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from gradscope.errors import GradscopeError

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000
"""The format's own limit on its header."""
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
}


def read_safetensors(path: Path, kind: type[GradscopeError]) -> dict[str, torch.Tensor]:
    """Return the tensors of a .safetensors file by name.

    Raises:
        GradscopeError: Of `kind`, if the file is truncated, or its header does not fit it.
    """
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if len(data) < LENGTH_BYTES or length > min(MOST_HEADER_BYTES, len(data) - LENGTH_BYTES):
        raise kind(
            f"{path.name} is not a .safetensors file, or it is truncated.", rule="Its header is longer than the file."
        )
    try:
        header = json.loads(data[LENGTH_BYTES : LENGTH_BYTES + length])
    except ValueError as error:
        raise kind(f"{path.name} is not a .safetensors file.", rule=f"Its header cannot be read: {error}.") from error
    if not isinstance(header, dict):
        raise kind(f"{path.name} is not a .safetensors file.", rule="Its header is no table of tensors.")
    body = memoryview(data)[LENGTH_BYTES + length :]
    return {name: _tensor(path, name, entry, body, kind) for name, entry in header.items() if name != "__metadata__"}


def _tensor(path: Path, name: str, entry: Any, body: memoryview, kind: type[GradscopeError]) -> torch.Tensor:
    try:
        if entry["dtype"] not in DTYPES:
            raise kind(
                f"{path.name}: {name!r} has the unknown type {entry['dtype']!r}.", rule=f"Known: {', '.join(DTYPES)}."
            )
        dtype, shape, (start, end) = DTYPES[entry["dtype"]], tuple(entry["shape"]), map(int, entry["data_offsets"])
        count = -1 if min(shape, default=0) < 0 else torch.Size(shape).numel()
    except (KeyError, TypeError, ValueError) as error:
        raise kind(
            f"{path.name}: the entry {name!r} is malformed.", rule=f"{type(error).__name__}: {error}."
        ) from error
    if not 0 <= start <= end <= len(body) or end - start != count * dtype.itemsize:
        raise kind(f"{path.name} is truncated or damaged at {name!r}.", rule="Its numbers lie outside the file.")
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(body[start:end], dtype=torch.uint8).clone().view(dtype).reshape(shape)
