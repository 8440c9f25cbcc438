"""What to do about an operation that makes a NaN or an infinity out of finite numbers."""

from __future__ import annotations

PRODUCTS = frozenset({"addmm", "mm", "bmm", "baddbmm", "addmv", "mv", "dot", "matmul", "linear", "convolution"})
"""Operations on whole layers: what overflows there has been growing, and was not made by the operation."""

_LARGEST = {"float16": "65,504", "bfloat16": "3e38", "float32": "3e38"}
"""The largest finite number of a format."""

_BY_NAME = (
    (
        ("softmax",),
        "A softmax over a row in which everything is masked with -inf gives NaN. Mask with a large finite number "
        "(torch.finfo(dtype).min), or keep at least one key per row.",
    ),
    (
        ("sqrt", "pow"),
        "The derivative of a root at zero is infinite: add a small constant inside it, or use "
        "torch.linalg.vector_norm.",
    ),
    (("log",), "The logarithm of zero is -inf: use log_softmax, logsigmoid or log(x + tiny)."),
    (
        ("div",),
        "A division by zero: add a small constant to the divisor, or mask before the division, not after it.",
    ),
    (
        ("exp",),
        "The exponential leaves the dtype's range above 88 (11 in float16): subtract the largest value first, or use "
        "logsumexp, softmax or softplus.",
    ),
    (("std", "var"), "The spread of a single element is 0/0: take it over two or more, or with correction=0."),
    (
        ("acos", "asin", "atanh"),
        "The derivative is infinite at -1 and 1: keep the argument inside, clamp(-1 + eps, 1 - eps).",
    ),
)
"""Part of an operation's name, and what to do; the first that fits counts."""


def cure(operation: str, detail: str, *, backward: bool) -> str:
    """Return what to do.

    Args:
        operation: What made the number, "" where that is not known.
        detail: What came out of what, in the probe's words.
        backward: Whether it happened on the way back.
    """
    name = operation.lower()
    if name in ("parameter", "input", "buffer"):
        return "Check how the weights and buffers are initialised or loaded, and the data."
    if name == "constant":
        return "A NaN is written into the computation as a constant: leave out what it stands for before, not after."
    for parts, text in _BY_NAME:
        if any(part in name for part in parts):
            return text
    if backward:
        return (
            "Every activation is finite, so look for an operation with an infinite derivative at a legal input: sqrt "
            "or a fractional power at 0, a softmax over a fully masked row, or torch.where around an unsafe expression."
        )
    if detail.startswith("inf came out of finite"):
        largest = next((f"{dtype}, {top}" for dtype, top in _LARGEST.items() if f" {dtype})" in detail), "the dtype")
        return (
            f"Finite numbers passed the largest of {largest}: scale them down before, norm what feeds this, or compute "
            "this part in float32."
        )
    return (
        "Look for a division by zero, a logarithm or root of a negative number, a fully masked softmax row, or a value "
        "beyond the dtype's range."
    )
