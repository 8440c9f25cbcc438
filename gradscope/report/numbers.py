"""Numbers as people read them: few digits, one form per kind of quantity, and a word where there is no number."""

from __future__ import annotations

import math

MISSING = "–"
"""Shown for a value that was not measured (None); zero is shown as 0."""

_PLAIN_FROM, _PLAIN_BELOW = 1e-2, 1e4
"""Magnitudes printed without an exponent; outside it four significant digits would not fit eight columns."""


def magnitude(value: float | None) -> str:
    """Format a norm or another magnitude for a column: three significant digits, two beside an exponent.

    Examples:
        >>> magnitude(0.00001234), magnitude(0.3), magnitude(0.0), magnitude(None)
        ('1.2e-05', '0.300', '0', '–')
    """
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return nonfinite(value)
    if value == 0:
        return "0"
    if _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return f"{value:#.3g}".removesuffix(".") if abs(value) < 999.5 else f"{value:.0f}"  # noqa: PLR2004
    return f"{value:.1e}"


def brief(value: float | None) -> str:
    """Format a magnitude for running text, without trailing zeros.

    Examples:
        >>> brief(0.3), brief(0.00001), brief(51.26)
        ('0.3', '1e-05', '51.3')
    """
    text = magnitude(value)
    digits, exponent_sign, exponent = text.partition("e")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return digits + exponent_sign + exponent


def nonfinite(value: float) -> str:
    """Format NaN and the infinities as the machine view spells them."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def decades(value: float | None) -> str:
    """Format a signed number of decades (log10), with its sign even where positive.

    Examples:
        >>> decades(-4.23), decades(0.0), decades(None)
        ('-4.23', '+0.00', '–')
    """
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return nonfinite(value)
    return f"{value:+.2f}" if abs(value) < 10 else f"{value:+.1f}"  # noqa: PLR2004


def log_change(after: float | None, before: float | None) -> float | None:
    """Return log10(after / before), None where either is missing, zero or not finite."""
    if not (_positive(after) and _positive(before)):
        return None
    assert after is not None
    assert before is not None
    return math.log10(after) - math.log10(before)


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return part / whole, None where it is undefined."""
    if part is None or whole is None or whole == 0:
        return None
    return part / whole


def count(value: int) -> str:
    """Format a number of things, shortened from ten thousand on.

    Examples:
        >>> count(950), count(9_999), count(1_234_567)
        ('950', '9,999', '1.23 M')
    """
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor and value >= 10_000:  # noqa: PLR2004
            return f"{value / factor:.3g} {unit}"
    return f"{value:,}"


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """Count a noun: `1 block`, `12 blocks`."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0
