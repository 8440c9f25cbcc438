"""The table of all modules: one row a module, with its gradient over the watched steps as a sparkline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from gradscope.metrics.facts import Facts, Module
from gradscope.metrics.weights import Parameter, update_to_weight
from gradscope.report.html.payload import spread
from gradscope.report.html.plot_text import rounded

STATIC_ROWS = 50
"""Rows in the page without scripts, as many as one page of the live table."""
SPARK_NUMBERS = 40_000
"""Numbers all sparklines together may hold; more modules get fewer points each."""
MAX_SPARK_POINTS = 24
FEW_MODULES = 2_000
DIGITS, FEWER_DIGITS = 5, 3
"""Digits of the numbers in the table, fewer where there are more than FEW_MODULES rows of them."""

COLUMNS = (
    ("module", "place"),
    ("type", "text"),
    ("parameters", "number"),
    ("calls", "number"),
    ("output norm", "number"),
    ("output gradient", "number"),
    ("parameter gradient", "number"),
    ("update ÷ weight", "number"),
    ("over steps", "spark"),
    ("note", "text"),
    ("source", "text"),
)


@dataclass(frozen=True)
class ModuleTable:
    """All rows for the live table, and those that stand in the page without scripts.

    Attributes:
        rows: One list a module, in the order of COLUMNS; the sparkline column holds log10 gradient norms.
        static: Row numbers that the page itself holds.
        found: Row numbers that a finding names.
        row_of: Row number by module name.
    """

    rows: list[list[Any]]
    static: list[int]
    found: list[int]
    row_of: dict[str, int]

    def payload(self) -> dict[str, Any]:
        """Return what the page's script needs, column by column, which compresses best."""
        columns = [{"name": name, "kind": kind} for name, kind in COLUMNS]
        by_column = [list(values) for values in zip(*self.rows, strict=True)]
        return {"columns": columns, "values": by_column, "count": len(self.rows), "found": self.found}


def module_table(facts: Facts, blamed: Sequence[str]) -> ModuleTable:
    """Build the table; `blamed` are the names of modules or parameters in the findings."""
    names = list(facts.modules)
    row_of = {name: place for place, name in enumerate(names)}
    owned: dict[str, list[Parameter]] = {}
    for parameter in facts.parameters:
        owned.setdefault(parameter.module, []).append(parameter)
        row_of.setdefault(parameter.name, row_of.get(parameter.module, 0))
    points = max(2, min(MAX_SPARK_POINTS, SPARK_NUMBERS // max(len(names), 1)))
    steps = spread(facts.steps, points)
    rows = [_row(facts, module, owned.get(name, []), steps) for name, module in facts.modules.items()]
    found = sorted({row_of[name] for name in blamed if name in row_of})
    static = sorted({*range(min(STATIC_ROWS, len(rows))), *found})
    return ModuleTable(rows, static, found, row_of)


def _row(facts: Facts, module: Module, parameters: list[Parameter], steps: Sequence[int]) -> list[Any]:
    first = facts.steps[0] if facts.steps else 0
    calls = facts.calls_of.get(module.name, [])
    call = calls[0] if calls else None
    gradients = facts.parameter_gradients.get(first, {})
    weights, updates = facts.weight_norms.get(first, {}), facts.update_norms.get(first, {})
    numbers = [
        facts.call_forwards.get(first, {}).get(call),
        facts.call_gradients.get(first, {}).get(call),
        _largest(gradients.get(parameter.row) for parameter in parameters),
        _largest(update_to_weight(updates.get(parameter.row), weights.get(parameter.row)) for parameter in parameters),
    ]
    digits = DIGITS if len(facts.modules) <= FEW_MODULES else FEWER_DIGITS
    spark = [_log10(facts.call_gradients.get(step, {}).get(call)) for step in steps]
    source = f"{module.file}:{module.line}" if module.file else ""
    return [
        module.name,
        module.type,
        module.num_parameters,
        len(calls),
        *(_shown(number, digits) for number in numbers),
        spark,
        note(facts, module, parameters, call),
        source,
    ]


def note(facts: Facts, module: Module, parameters: list[Parameter], call: int | None) -> str:
    """Say what a number cannot: not called, no gradient arrived, or exactly zero."""
    first = facts.steps[0] if facts.steps else 0
    if not module.called and not parameters:
        return "not called"
    if any(parameter.requires_grad and parameter.takes_part is False for parameter in parameters):
        return "no gradient arrived"
    if facts.call_gradients.get(first, {}).get(call) == 0.0:
        return "gradient exactly zero"
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        return "frozen"
    return "" if module.called else "used without being called"


def _largest(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _log10(value: float | None) -> float | None:
    return round(math.log10(value), 2) if value is not None and 0 < value < math.inf else None


def _shown(value: float | None, digits: int) -> Any:
    """Keep a few digits; what is not finite becomes a word, which JSON can carry."""
    if value is not None and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    return rounded([value], digits)[0]


def sparkline(points: Sequence[float | None]) -> Markup:
    """Draw log10 gradient norms over steps; a page's script draws the same."""
    known = [value for value in points if value is not None]
    if not known:
        return Markup('<svg class="spark" viewBox="0 0 84 22" role="img" aria-label="not measured"></svg>')
    low, span = min(known), max(max(known) - min(known), 1.0)
    path, pen = "", "M"
    for place, value in enumerate(points):
        if value is None:
            pen = "M"
            continue
        path += f"{pen}{2 + 80 * place / max(len(points) - 1, 1):.1f} {19 - 16 * (value - low) / span:.1f}"
        pen = "L"
    if len(known) == 1:
        path += "h3"
    return Markup('<svg class="spark" viewBox="0 0 84 22" role="img" aria-label="{}"><path d="{}"/></svg>').format(
        f"from 10^{known[0]} to 10^{known[-1]}", path
    )
