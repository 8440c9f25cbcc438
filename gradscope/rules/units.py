"""The shape that findings about units of activations share: the first bad place and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity


def worst_units(
    facts: Facts, code: str, severity: Severity, metric: str, limit: float, sentence: str, advice: str
) -> Sequence[Finding]:
    """Return one finding at the first place where a per-call fraction reaches the limit, [] where none does.

    Args:
        facts: The recording.
        code: The rule's code.
        severity: The finding's severity.
        metric: The observation to read at its first step.
        limit: The level from which a place is bad.
        sentence: What to say, with {value} and {module}.
        advice: What to do.
    """
    values = facts.observed(metric)
    bad = [(place, value) for place, value in values.items() if value >= limit]
    if not bad:
        return []
    (module, call), value = bad[0]
    more = f" ({len(bad)} of {len(values)} such activations)" if len(values) > 1 else ""
    return [
        finding_at(
            facts,
            code,
            severity,
            module,
            sentence.format(value=value, module=module or "the model") + more + ".",
            {metric: value, "threshold": limit, "places": len(bad), "of": len(values)},
            advice,
            call,
        )
    ]
