"""--input 8x128:int64:0..50257: inputs written out on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from gradscope.errors import InputsError
from gradscope.target.nearest import did_you_mean

DTYPES = {
    "float32": torch.float32,
    "float": torch.float32,
    "float64": torch.float64,
    "double": torch.float64,
    "float16": torch.float16,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "long": torch.int64,
    "int": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
EXAMPLE = "8x128:int64:0..50257"
MOST_ELEMENTS = 2**31
"""More than two thousand million numbers are taken for a slip, not for a batch."""
SEED = 20
"""Inputs are drawn from a generator of their own: the global one must not notice."""


@dataclass(frozen=True)
class Written:
    """One input as written.

    Attributes:
        name: The keyword it is passed by; empty for a positional input.
        shape: Its shape.
        dtype: Its type.
        low: Smallest value, for integers and uniform floats.
        high: One more than the largest integer; the upper end for floats; None for normally distributed floats.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float = 0.0
    high: float | None = None


def parse_inputs(text: str) -> list[Written]:
    """Parse one or several inputs, separated by commas or white space.

    Each is ``[name=]shape[:dtype[:low..high]]``; a scalar's shape is written ``()``.

    >>> parse_inputs("8x128:int64:0..50257")[0].shape
    (8, 128)

    Raises:
        InputsError: If an input is not of that form.
    """
    return [_parse(part, text) for part in re.split(r"[,;\s]+", text.strip()) if part]


def make_batch(written: list[Written]) -> Any:
    """Return the batch: a dict where every input has a name, else a tuple."""
    generator = torch.Generator().manual_seed(SEED)
    tensors = [make_tensor(w, generator) for w in written]
    if all(w.name for w in written):
        return {w.name: tensor for w, tensor in zip(written, tensors, strict=True)}
    return tuple(tensors)


def make_tensor(written: Written, generator: torch.Generator) -> torch.Tensor:
    """Return one random tensor of the written shape, type and range."""
    dtype = written.dtype
    if dtype is torch.bool:
        return torch.rand(written.shape, generator=generator) < 0.5  # noqa: PLR2004  # a fair coin
    if not dtype.is_floating_point and not dtype.is_complex:
        high = int(written.high) if written.high is not None else 2
        return torch.randint(int(written.low), high, written.shape, generator=generator).to(dtype)
    if written.high is None:
        return torch.randn(
            written.shape, generator=generator, dtype=torch.complex64 if dtype.is_complex else torch.float32
        ).to(dtype)
    return (torch.rand(written.shape, generator=generator) * (written.high - written.low) + written.low).to(dtype)


def _parse(part: str, text: str) -> Written:
    name, equals, rest = part.partition("=")
    name, rest = (name, rest) if equals else ("", part)
    shape_text, dtype_text, range_text, *more = [*rest.split(":"), "", ""][:3] + rest.split(":")[3:]
    if more or not re.fullmatch(r"\(\)|\d+(x\d+)*", shape_text):
        raise InputsError(
            f"--input {text!r} is not an input.", rule=f"Write [name=]shape[:dtype[:low..high]], such as {EXAMPLE}."
        )
    shape = () if shape_text == "()" else tuple(int(n) for n in shape_text.split("x"))
    if dtype_text and dtype_text not in DTYPES:
        raise InputsError(f"--input {text!r}: there is no dtype {dtype_text!r}.", rule=did_you_mean(dtype_text, DTYPES))
    if torch.Size(shape).numel() > MOST_ELEMENTS:
        raise InputsError(
            f"--input {text!r} asks for {torch.Size(shape).numel():.1e} numbers.", rule="Give a smaller shape."
        )
    dtype = DTYPES[dtype_text or "float32"]
    return Written(name, shape, dtype, *_parse_range(range_text, text))


def _parse_range(range_text: str, text: str) -> tuple[float, float | None]:
    if not range_text:
        return 0.0, None
    try:
        low, high = (float(bound) for bound in range_text.split(".."))
    except ValueError as error:
        raise InputsError(
            f"--input {text!r}: {range_text!r} is not a range.", rule="Write low..high, such as 0..50257."
        ) from error
    if high <= low:
        raise InputsError(
            f"--input {text!r}: the range {range_text} is empty.", rule="The upper end is exclusive and must be larger."
        )
    return low, high
