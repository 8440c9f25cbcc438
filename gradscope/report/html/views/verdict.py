"""The head of the page: healthy or not, where, why, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradscope.metrics.facts import Facts
from gradscope.report.html.wording import MINUS, change, compared, cosine, count, number, percent
from gradscope.rules.finding import Diagnosis, Finding

VERDICTS: Mapping[str, tuple[str, str]] = {
    "will-train": ("Will train", "good"),
    "at-risk": ("At risk", "warn"),
    "will-not-train": ("Will not train", "bad"),
    "cannot-say": ("Cannot say", "unsure"),
}
"""verdict -> (words, style)."""


@dataclass(frozen=True)
class Fact:
    """One headline number: its name, its glossary word and its value in words."""

    name: str
    value: str
    term: str = ""


def gravest(diagnosis: Diagnosis) -> Finding | None:
    """Return the finding that the head of the page is about; None where nothing is wrong."""
    return next((finding for finding in diagnosis.findings if finding.severity != "info"), None)


Written = tuple[str, str, str, Callable[[Any], str]]
"""A headline metric, its name on the page, its glossary word, and how its value is written."""

_SIZES: tuple[Written, ...] = (
    ("num_blocks", "Blocks", "", number),
    ("num_residual_additions", "Residual additions", "residual addition", number),
    ("jacobian_anisotropy", "Jacobian anisotropy", "Jacobian anisotropy", number),
    ("forward_ratio", "Branch ÷ stream, typical", "forward ratio", number),
    ("update_to_weight", "Update ÷ weight, typical", "update-to-weight ratio", number),
    ("token_cosine", "Tokens alike (cosine)", "token cosine", cosine),
    ("sample_cosine", "Samples alike (cosine)", "sample cosine", cosine),
)
"""What is told behind the decades."""
_SHARES: tuple[Written, ...] = (
    ("dead_fraction", "Dead units, worst module", "dead unit", percent),
    ("saturated_fraction", "Saturated units, worst module", "saturated", percent),
)
"""What is told behind the balance of attention."""


def _written(metrics: Mapping[str, float | int | None], rows: Sequence[Written]) -> list[Fact]:
    return [
        Fact(words, write(value), term) for name, words, term, write in rows if (value := metrics.get(name)) is not None
    ]


def headline_facts(facts: Facts, diagnosis: Diagnosis) -> list[Fact]:
    """List the headline numbers that were measured, in words."""
    metrics = diagnosis.metrics
    found: list[Fact] = []
    decades, later = metrics.get("decades"), metrics.get("later_decades")
    if decades is not None:
        ends = [float(decades)] if later is None else [float(decades), float(later)]
        same = len({change(value) for value in ends}) == 1
        ends = ends[:1] if same else ends
        steps = "" if same else f", step {facts.steps[0]} → {facts.steps[-1]}"
        found.append(Fact(f"Gradient at the input{steps}", " → ".join(map(change, ends)), "depth"))
        found.append(Fact(f"In decades{steps}", " → ".join(map(number, ends)), "decade"))
    if metrics.get("num_seeds") is not None:
        spread = " to ".join(number(metrics.get(f"decades_{end}")) for end in ("low", "high"))
        found.append(Fact(f"95 % over {metrics['num_seeds']} seeds", f"{spread} decades", "decade"))
    if metrics.get("predicted_decades") is not None:
        found.append(Fact("Expected for this design", f"{number(metrics['predicted_decades'])} decades", "expected"))
    found += _written(metrics, _SIZES)
    balance = metrics.get("query_key_to_value_log10")
    if balance is not None:
        found.append(Fact("Query/key against value gradient", change(float(balance))))
    found += _written(metrics, _SHARES)
    losses = [(step, facts.losses[step]) for step in facts.steps if facts.losses.get(step) is not None]
    if losses:
        (first, start), (last, end) = losses[0], losses[-1]
        found.append(
            Fact("Loss", number(start, 4) if first == last else f"{number(start, 4)} → {number(end, 4)} at step {last}")
        )
    return found


def no_fault_answers(facts: Facts, diagnosis: Diagnosis) -> tuple[str, str, str]:
    """Answer where, why and what to change when there is no error or warning."""
    if diagnosis.verdict == "cannot-say":
        return "Not known.", diagnosis.reason, "Give gradscope what it was missing: see “What was not measured”."
    sites = sum(1 for site in facts.sites if site.counted)
    decades = diagnosis.metrics.get("decades")
    carried = f"The gradient at the input is {compared(float(decades))} the loss end. " if decades is not None else ""
    skips = f"{count(sites, 'residual addition')} {'carries' if sites == 1 else 'carry'} it back." if sites else ""
    return "Nowhere.", f"{carried}{skips}".strip() or diagnosis.reason, "Nothing."


def place_in_words(finding: Finding, facts: Facts, station: int | None, num_stations: int) -> str:
    """Say where along the depth a finding lies."""
    if not finding.module:
        return "the whole model"
    if station is None:
        return ""
    return f"place {station + 1} of {num_stations} from the input" if num_stations else ""


def evidence_value(value: float | int | str | bool | None) -> str:
    """Write one piece of evidence."""
    return (
        value.replace("-", MINUS)
        if isinstance(value, str) and value.startswith("-")
        else (value if isinstance(value, str) else number(value))
    )
