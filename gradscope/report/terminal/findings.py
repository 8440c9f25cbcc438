"""The findings: code, culprit, evidence, advice, source line; the first few of each code, the rest counted."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gradscope.report.evidence import described_evidence
from gradscope.report.glyphs import Glyphs
from gradscope.report.names import fit, shown_module, visible
from gradscope.report.rulebook import rule_title
from gradscope.report.terminal.layout import SEVERITY_STYLES, draw_pairs, draw_title, severity_sign
from gradscope.rules.finding import Finding

SHOWN_PER_CODE = 3
"""Findings of one code printed in full; a model with 1,000 dead layers should still fit a screen."""

_SOURCE_CELLS = 34
"""Cells reserved for the source line at the right, enough for folder/file.py:1234."""


def draw_findings(findings: Sequence[Finding], console: Console, glyphs: Glyphs, *, show_all: bool) -> None:
    """Print the findings, most severe first."""
    if not findings:
        return
    draw_title(console, "Findings")
    seen: dict[str, int] = {}
    last_advice: dict[str, str] = {}
    for finding in findings:
        seen[finding.code] = seen.get(finding.code, 0) + 1
        if show_all or seen[finding.code] <= SHOWN_PER_CODE:
            if sum(seen.values()) > 1:
                console.print()
            known = last_advice.get(finding.code) == finding.advice
            brief = finding.severity == "info" and not show_all
            _draw_finding(finding, console, glyphs, evidence=not brief, advice=not (brief or known))
            last_advice[finding.code] = finding.advice
    folded = {code: number - SHOWN_PER_CODE for code, number in seen.items() if number > SHOWN_PER_CODE}
    if folded and not show_all:
        rest = ", ".join(f"{number} more of {code}" for code, number in folded.items())
        console.print(Text(f"  {glyphs.ellipsis} {rest} (--all lists them)", style="dim"))


def _draw_finding(finding: Finding, console: Console, glyphs: Glyphs, *, evidence: bool, advice: bool) -> None:
    style = SEVERITY_STYLES[finding.severity]
    head = Text("  ").append(f"{severity_sign(finding.severity, glyphs)} {finding.code}", style=style)
    title = rule_title(finding.code)
    if title:
        head.append(f"  {title}", style="bold")
    source = _source(finding)
    place = shown_module(finding.module, finding.call)
    room = console.width - head.cell_len - 3 - (len(source) + 2 if source else 0)
    head.append(f"  {fit(place, max(room, 12), glyphs.ellipsis)}", style="bold cyan" if finding.module else "dim")
    if source:
        gap = max(2, console.width - head.cell_len - Text(source).cell_len)
        head.append(" " * gap).append(source, style="dim")
    console.print(head, overflow="fold")
    draw_pairs(console, [("", Text(visible(finding.message)))], label_width=0, indent=2)
    pairs = []
    if finding.evidence and evidence:
        pairs.append(("evidence", Text(described_evidence(finding.evidence, glyphs), style="dim")))
    if finding.advice and advice:
        pairs.append(("advice", Text(visible(finding.advice))))
    if pairs:
        draw_pairs(console, pairs, indent=4)


def _source(finding: Finding) -> str:
    if not finding.file:
        return ""
    line = f":{finding.line}" if finding.line else ""
    return fit(finding.file, _SOURCE_CELLS - len(line)) + line
