"""What the page says of networks with a factor in the way of the signal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from benchmarks.calibration import results
from benchmarks.calibration.scales import FACTORS, RATES, TABLE

HEAD = "| factor | a norm behind | optimizer | trained / failed / slow | judged dead / at risk |"


def factors_section() -> str:
    """Tell how these networks ended, and what the verdict says of them."""
    rows = results.read(TABLE)
    number = len({(row["network"], row["layers"]) for row in rows})
    lines = [_line(rows, *kind) for kind in product(FACTORS, (True, False), RATES)]
    text = (
        f"{number} stacks of eight layers (some of twenty) with a factor behind one of them or spread over all, in"
        " front of a norm or of none (`scales.py`). Where a norm follows, it forgets a large factor: the gradient in"
        " front of it is as many times larger than that behind it, and nothing happens. A small one drowns the signal"
        " in the biases behind it; what then counts is log10(‖g₀‖‖h₀‖ / ‖g_L‖‖h_L‖), not log10(‖g₀‖ / ‖g_L‖): at three"
        " decades and more Adam begins late or not at all, and SGD does not train."
    )
    return "\n".join([text, "", HEAD, "|---|---|---|---|---|", *lines])


def _line(rows: Sequence[dict[str, str]], factor: float, normed: bool, optimizer: str) -> str:
    mine = [
        row
        for row in rows
        if row["optimizer"] == optimizer
        and f"-{factor:g}-" in row["network"]
        and ("-none-" not in row["network"]) == normed
    ]
    ended = [sum(row["ended"] == one for row in mine) for one in ("trained", "failed", "slow")]
    judged = [sum(row["verdict"] == one for row in mine) for one in ("will-not-train", "at-risk")]
    cells = [f"{factor:g}", "yes" if normed else "no", optimizer, *(" / ".join(map(str, c)) for c in (ended, judged))]
    return f"| {' | '.join(cells)} |"
