"""The whole report, top to bottom."""

from __future__ import annotations

from rich.console import Console

from gradscope.record import Recording
from gradscope.report.blocks import blocks_of
from gradscope.report.glyphs import glyphs_for
from gradscope.report.terminal.findings import draw_findings
from gradscope.report.terminal.header import draw_header
from gradscope.report.terminal.limits import draw_limits, draw_next
from gradscope.report.terminal.profile import draw_profile
from gradscope.report.terminal.sites import draw_sites
from gradscope.report.terminal.table import draw_table
from gradscope.report.terminal.verdict import draw_measures, draw_verdict
from gradscope.rules.finding import Diagnosis


def render(recording: Recording, diagnosis: Diagnosis, console: Console, *, show_all: bool = False) -> None:
    """Print the report.

    Args:
        recording: What was measured.
        diagnosis: What the rules say of it.
        console: Where to print; its width, colours and encoding are respected.
        show_all: List every block, site, finding and limit instead of the worst of each.
    """
    glyphs = glyphs_for(console.encoding)
    blocks = blocks_of(recording, diagnosis.findings)
    draw_header(recording, console, glyphs)
    draw_verdict(diagnosis, console, glyphs)
    draw_findings(diagnosis.findings, console, glyphs, show_all=show_all)
    draw_profile(blocks, console, glyphs)
    draw_table(blocks, console, glyphs, show_all=show_all)
    if show_all:
        draw_sites(recording, console, glyphs)
    draw_measures(diagnosis, console)
    draw_limits(recording, console, show_all=show_all)
    draw_next(recording, diagnosis, console)
