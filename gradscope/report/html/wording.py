"""Numbers in words that a newcomer reads without a calculator."""

from __future__ import annotations

import math

MINUS = "\u2212"
SAME_SIZE_DECADES = 0.1
"""Within a quarter either way: called "about the same size"."""
ROUNDS_UP = 1 - math.log10(9.5)
"""log10 of what makes 9.5 a 10: a leading digit never rounds to ten."""
SMALLEST_PERCENT = 0.1
WRITTEN_OUT = 1e7
"""Factors below ten million are written out, larger ones as powers of ten."""


def number(value: float | int | None, digits: int = 3) -> str:
    """Write a number in at most seven or so characters; "–" where it was not measured.

    Example:
        >>> number(0.000012345), number(12345.6), number(None)
        ('1.23e−5', '12,346', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == 0:
        return "0"
    size = abs(value)
    if 1e3 <= size < 1e6:  # noqa: PLR2004 - where thousands separators read best
        return f"{value:,.0f}".replace("-", MINUS)
    text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", MINUS)


def factor(decades: float) -> str:
    """Write a number of decades as a factor, whatever its sign.

    Example:
        >>> factor(-4.2), factor(0.3), factor(12.78), factor(-300.0)
        ('16,000×', '2×', '6·10¹²×', '10³⁰⁰×')
    """
    size = abs(decades)
    if not math.isfinite(size):
        return "infinitely"
    value = 10**size if size < math.log10(WRITTEN_OUT) else 0.0
    if not value:
        exponent = math.floor(size + ROUNDS_UP)
        first = round(10 ** (size - exponent))
        return f"{f'{first}·' if first > 1 else ''}10{_raised(exponent)}×"
    if value < 10:  # noqa: PLR2004 - one digit before the point
        return f"{value:.2g}×"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}×"


def change(decades: float | None, *, grows: str = "larger", shrinks: str = "smaller") -> str:
    """Say how much larger or smaller one end is than the other.

    Example:
        >>> change(-4.2)
        '16,000× smaller'
    """
    if decades is None:
        return "not measured"
    if math.isnan(decades):
        return "not a number"
    if abs(decades) < SAME_SIZE_DECADES:
        return "about the same size"
    return f"{factor(decades)} {grows if decades > 0 else shrinks}"


def compared(decades: float | None) -> str:
    """Say how one end compares with the other, ready for the other end's name.

    Example:
        >>> compared(-4.2) + " the loss end", compared(0.0) + " the loss end"
        ('16,000× smaller than at the loss end', 'about the same size as at the loss end')
    """
    words = change(decades)
    return f"{words} as at" if words.startswith("about") else f"{words} than at"


def percent(share: float | None) -> str:
    """Write a share as a percentage.

    Example:
        >>> percent(0.0832), percent(1.0), percent(0.0003)
        ('8.3 %', '100 %', 'under 0.1 %')
    """
    if share is None or math.isnan(share):
        return "–"
    value = 100 * share
    if 0 < value < SMALLEST_PERCENT:
        return f"under {SMALLEST_PERCENT} %"
    return f"{value:.1f} %" if 0 < abs(value) < 10 else f"{value:.0f} %"  # noqa: PLR2004 - one digit before the point


def cosine(value: float) -> str:
    """Write a cosine to three places: near 1 the third one tells.

    Example:
        >>> cosine(0.99951)
        '1.000'
    """
    return f"{value:.3f}".replace("-", MINUS)


def count(value: int, one: str, many: str = "") -> str:
    """Write a count with its noun: "1 step", "3 steps"."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def listed(items: list[str]) -> str:
    """Join words as English does: "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _raised(value: int) -> str:
    from gradscope.report.html.scale import SUPERSCRIPTS

    return str(value).translate(SUPERSCRIPTS)
