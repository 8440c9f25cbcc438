"""What a rule says about a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "info"]
Verdict = Literal["will-train", "at-risk", "will-not-train", "cannot-say"]
Value = float | int | str | bool | None


@dataclass(frozen=True)
class Finding:
    """One fault (or remark) at one place.

    Attributes:
        code: The rule's stable code, such as "GS101".
        severity: error, warning or info.
        module: The culprit: the first bad place, by module (or parameter) name; "" for the whole model.
        call: Which call of that module, from 0.
        message: One sentence with the numbers that matter.
        evidence: The numbers, by name with unit (`decades`, `threshold_decades`, ...).
        advice: What to do, chosen by the evidence.
        file: The user's source file of the culprit, relative; None where there is none.
        line: The line in it (1-based).
    """

    code: str
    severity: Severity
    module: str
    message: str
    advice: str
    evidence: Mapping[str, Value] = field(default_factory=dict)
    call: int = 0
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The judgement of one recording.

    Attributes:
        verdict: will-train, at-risk, will-not-train or cannot-say.
        reason: The verdict's reason in one plain sentence a newcomer understands.
        findings: All findings, errors first, then in order of depth.
        metrics: Headline numbers of the whole model (`decades`, `decades_per_block`, `num_blocks`,
            `jacobian_anisotropy`, `token_cosine`, ...); None where not measured.
    """

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...]
    metrics: Mapping[str, float | int | None]
