"""The list of all residual additions (--all)."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from gradscope.record import Recording
from gradscope.report.glyphs import Glyphs
from gradscope.report.names import fit, fit_dotted, visible
from gradscope.report.numbers import magnitude, ratio
from gradscope.report.terminal.layout import draw_title

_NUMBER_CELLS = 43
"""Cells of kind, norm, both ratios and the cosine, with the spaces in front of them."""


def draw_sites(recording: Recording, console: Console, glyphs: Glyphs) -> None:
    """Print every residual addition with its kind, ratios, cosine and source line."""
    if not recording.num_rows("sites"):
        return
    draw_title(console, "Residual additions", "f/x: branch over skip; cosine of the two gradients")
    step = recording.watched_steps[0] if recording.watched_steps else None
    stats = {row["site"]: row for row in recording.rows("site_stats") if row["step"] == step}
    source_cells = 20 if any(recording.tables["sites"]["file"]) else 0
    name_cells = max(16, console.width - 2 - _NUMBER_CELLS - source_cells)
    heading = f"  {'':<{name_cells}} {'kind':<10} {'norm':<8} {'fwd f/x':>7} {'bwd f/x':>7} {'cosine':>6}"
    console.print(Text(heading, style="dim"), no_wrap=True, overflow="crop")
    for number, site in enumerate(recording.rows("sites")):
        row = stats.get(number, {})
        name = fit_dotted(site["name"], name_cells, glyphs.ellipsis)
        line = Text("  " + name + " " * (name_cells - Text(name).cell_len))
        line.append(f" {visible(site['kind'] or ''):<10} {visible(site['placement'] or ''):<8}", style="dim")
        for part, whole in (("branch_norm", "skip_norm"), ("branch_grad_norm", "skip_grad_norm")):
            line.append(f" {magnitude(ratio(row.get(part), row.get(whole))):>7}")
        cosine = row.get("cosine")
        line.append(f" {glyphs.missing if cosine is None else f'{cosine:+.2f}':>6}")
        if site["file"]:
            line.append(f"  {fit(site['file'], 14, glyphs.ellipsis)}:{site['line']}", style="dim")
        console.print(line, no_wrap=True, overflow="crop")
