"""What a rule is: a stable code, named thresholds, a check, and the documentation that every view shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gradscope.metrics.facts import Facts
from gradscope.rules.finding import Finding, Severity

Levels = Mapping[str, float]
"""The thresholds in force for one rule, by their short name."""


@dataclass(frozen=True)
class Threshold:
    """A level at which a rule speaks.

    Attributes:
        name: Short name; together with the code it is what `--set GS101.decades=3` names.
        value: The default.
        unit: Its unit in words.
        source: Where the value comes from.
        why: Why this value, in one sentence.
    """

    name: str
    value: float
    unit: str
    source: str
    why: str


@dataclass(frozen=True)
class RuleDoc:
    """A rule's documentation under the fixed headings, in Markdown; references are one paper or page each."""

    measures: str
    why: str
    false_positives: str
    example: str
    advice: str
    references: tuple[str, ...]

    def sections(self) -> tuple[tuple[str, str], ...]:
        """Return (heading, text) in the fixed order."""
        return (
            ("What it measures", self.measures.strip()),
            ("Why it matters", self.why.strip()),
            ("Known false positives", self.false_positives.strip()),
            ("Example", self.example.strip()),
            ("What to do", self.advice.strip()),
            ("References", "\n".join(f"- {reference}" for reference in self.references)),
        )


@dataclass(frozen=True)
class Rule:
    """One rule of the registry.

    Attributes:
        code: Stable code, such as "GS101".
        name: Short name in lower case with dashes, such as "vanishing-with-depth".
        severity: The most severe finding it can give.
        summary: One sentence for lists.
        thresholds: Its levels.
        check: ``check(facts, levels)`` to findings, in order of depth.
        doc: Its documentation.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    thresholds: tuple[Threshold, ...]
    check: Callable[[Facts, Levels], Sequence[Finding]]
    doc: RuleDoc

    @property
    def defaults(self) -> dict[str, float]:
        """The thresholds' default values by short name."""
        return {threshold.name: threshold.value for threshold in self.thresholds}
