"""An identity for a finding that survives unrelated edits: of the rule and the place, not of lines or numbers."""

from __future__ import annotations

import hashlib

from gradscope.rules.finding import Finding


def fingerprint(target: str, finding: Finding, occurrence: int = 0) -> str:
    """Return 32 hexadecimal digits that depend on target, code, module and call alone.

    Args:
        target: The target string of the recording.
        finding: The finding.
        occurrence: Number among findings that agree in all of these, from 0.
    """
    key = "\0".join((target, finding.code, finding.module, str(finding.call), str(occurrence)))
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Occurrences:
    """Counts equal findings, so that each of them gets a fingerprint of its own."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def fingerprint(self, target: str, finding: Finding) -> str:
        """Return the fingerprint of the next finding with this key."""
        first = fingerprint(target, finding)
        number = self._seen.get(first, 0)
        self._seen[first] = number + 1
        return fingerprint(target, finding, number)
