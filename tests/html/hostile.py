"""A recording whose every text tries to break out of the page."""

from __future__ import annotations

from typing import Any

from gradscope.record import Provenance, Recording
from gradscope.rules.finding import Diagnosis, Finding
from tests.support.recordings import add, build, stack

ATTACKS = (
    "</script><script>window.owned=1</script>",
    "<img src=x onerror=window.owned=2>",
    "{{7*7}}{% raw %}${7*7}#{7*7}",
    "javascript:window.owned=3",
    '"><svg onload=window.owned=4>',
    "<a href='javascript:window.owned=5'>x</a><b>bold</b>&lt;&amp;",
    "\u202eright to left\u202c \u05d0\u05d1\u05d2",
    "emoji \U0001f468\u200d\U0001f469\u200d\U0001f467 \u0000\u0007\ud800",
    "long " * 2000,
    "<!--<script>-->]]>",
    "%{y}<extra></extra>",
    "=HYPERLINK(1)",
)

TEXTS = (
    "target", "inputs", "loss", "device", "dtype", "mode", "optimizer", "batch_shape", "gradscope", "torch", "python",
    "git_commit",
)  # fmt: skip


def recording() -> Recording:
    """Take a healthy stack of twelve blocks and put an attack into every text of it."""
    names = [f"layers.{place}.{attack}" for place, attack in enumerate(ATTACKS)]
    base = stack(len(names), names=names, decades_per_block=-0.4, residual=True)
    tables = {name: {column: list(values) for column, values in table.items()} for name, table in base.tables.items()}
    for place, attack in enumerate(ATTACKS):
        add(tables["confessions"], what=attack, why=attack)
        add(tables["observations"], step=0, metric="token_cosine", module=names[place], call=0, value=0.1 * (place % 9))
        add(tables["observations"], step=10, metric="token_cosine", module=names[place], call=0, value=0.9)
        add(tables["observations"], step=0, metric="absorption_bf16", module=attack, call=0, value=0.01)
        add(
            tables["histograms"],
            step=0,
            name=attack,
            kind=attack,
            first_log2=-30,
            counts=[1, 5, 2],
            zeros=1,
            nonfinite=0,
        )
        add(
            tables["events"], step=0, kind="error", module=attack, call=0, op=attack, file=attack, line=1, detail=attack
        )
    for table in ("modules", "sites"):
        for column in ("type", "role", "file", "kind", "placement"):
            if column in tables[table]:
                tables[table][column] = [ATTACKS[row % len(ATTACKS)] for row in range(len(tables[table][column]))]
    tables["sites"]["branches"] = [[ATTACKS[row % len(ATTACKS)]] for row in range(len(tables["sites"]["name"]))]
    words: dict[str, Any] = dict.fromkeys(TEXTS, ATTACKS[0] + ATTACKS[1])
    words["arguments"] = {attack: attack for attack in ATTACKS}
    return build(tables, **{**vars(Provenance("", "", "")), **words, "lr": 1e-3, "num_steps": 11})


def diagnosis() -> Diagnosis:
    """Blame every block, in the words of an attacker."""
    findings = tuple(
        Finding(
            f"GS{1 + place % 6}01",
            "error" if place % 2 else "warning",
            f"layers.{place}.{attack}",
            attack,
            attack,
            {attack: attack, "number": float("nan")},
            file=attack,
            line=place,
        )
        for place, attack in enumerate(ATTACKS)
    )
    return Diagnosis("will-not-train", ATTACKS[0], findings, {"decades": -4.8, "num_blocks": 12, ATTACKS[1]: None})
