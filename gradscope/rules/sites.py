"""A finding about a residual addition points at the line of the addition itself, where it is known."""

from __future__ import annotations

from collections.abc import Mapping

from gradscope.metrics.facts import Facts
from gradscope.metrics.residual import Site
from gradscope.rules.finding import Finding, Severity, Value


def site_finding(
    facts: Facts,
    code: str,
    severity: Severity,
    site: Site,
    message: str,
    evidence: Mapping[str, Value],
    advice: str,
) -> Finding:
    """Return a finding at an addition: its line, else the class of the module that executes it."""
    file, line = (site.file, site.line) if site.file else facts.place(site.module)
    where = f"`{site.name}`: "
    return Finding(code, severity, site.module, where + message, advice, evidence, site.call, file, line)
