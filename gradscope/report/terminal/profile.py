"""The depth profile: one bar per block on a log scale, from the input at the top to the loss at the bottom."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gradscope.report.blocks import Block, Blocks
from gradscope.report.glyphs import Glyphs
from gradscope.report.names import fit_dotted, shown_module
from gradscope.report.numbers import magnitude
from gradscope.report.terminal.layout import SEVERITY_STYLES, draw_note, draw_title

MAX_BARS = 16
"""Bars in the profile: the whole of it is to be seen at once on a laptop's terminal."""

MIN_DECADES = 3
"""Shortest axis in decades, so that the harmless differences of a healthy model do not look like a cliff."""

_WIDE = 80
"""From this width on the last watched step has a column of its own."""


def draw_profile(blocks: Blocks, console: Console, glyphs: Glyphs) -> None:
    """Print the profile; nothing where no gradient was seen at any block."""
    rows = _shown(blocks.rows)
    axis = _axis([norm for row in rows for norm in (row.grad_norm, row.later_grad_norm)])
    if axis is None:
        return
    where = "along the stream" if blocks.on_stream else "module by module"
    mark = "" if blocks.later_step is None else f", {glyphs.mark} step {blocks.later_step}"
    draw_title(console, "Gradient " + where, f"step {blocks.step}{mark}; L2 norm, log scale, input on top")
    with_later = blocks.later_step is not None and console.width >= _WIDE
    name_cells = max(8, min(console.width // 3 - 4, max(len(shown_module(row.name, row.call)) for row in rows)))
    later_cells = 9 if with_later else 0
    marker_cells = 8
    bar_cells = max(8, console.width - 2 - name_cells - 2 - 8 - 2 - marker_cells - later_cells)
    if with_later:
        _draw_heading(blocks, name_cells, bar_cells, console)
    for row in rows:
        line = Text("  ")
        name = fit_dotted(shown_module(row.name, row.call), name_cells, glyphs.ellipsis)
        line.append(name + " " * (name_cells - Text(name).cell_len), style=_style(row) or "")
        line.append(f"  {magnitude(row.grad_norm):>8}  ")
        line.append_text(_bar(row, axis, bar_cells, glyphs))
        if with_later:
            line.append(f"{magnitude(row.later_grad_norm):>9}", style="dim")
        if row.findings:
            line.append(f" {glyphs.culprit} {row.findings[0].code}", style=_style(row) or "")
        console.print(line, no_wrap=True, overflow="crop")
    _draw_axis(axis, bar_cells, 2 + name_cells + 2 + 8 + 2, console, glyphs)
    if len(rows) < len(blocks.rows):
        draw_note(console, f"{len(rows)} of {len(blocks.rows)} places: both ends, the flagged, the rest evenly spaced")


def _shown(rows: Sequence[Block]) -> list[Block]:
    """Pick the first, the last, the flagged and evenly spaced ones between, in order."""
    if len(rows) <= MAX_BARS:
        return list(rows)
    flagged = [number for number, row in enumerate(rows) if any(f.severity != "info" for f in row.findings)]
    wanted = {0, len(rows) - 1, *flagged[: MAX_BARS // 2]}
    free = MAX_BARS - len(wanted)
    for slot in range(free):
        wanted.add(round((slot + 1) * (len(rows) - 1) / (free + 1)))
    return [rows[number] for number in sorted(wanted)]


def _axis(norms: Sequence[float | None]) -> tuple[int, int] | None:
    """Return the powers of ten at the ends of the axis, None where there is nothing to draw."""
    logs = [math.log10(norm) for norm in norms if norm is not None and _drawable(norm)]
    if not logs:
        return None
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    low = low - 1 if min(logs) - low < 0.05 else low  # noqa: PLR2004  # the shortest bar stays visible
    return min(low, high - MIN_DECADES), high


def _drawable(norm: float | None) -> bool:
    return norm is not None and math.isfinite(norm) and norm > 0


def _bar(row: Block, axis: tuple[int, int], cells: int, glyphs: Glyphs) -> Text:
    """Draw the bar of the first step, with a mark where the last one stands."""
    norm = row.grad_norm
    if not _drawable(norm):
        words = "no gradient seen" if norm is None else "exactly zero" if norm == 0 else "not finite"
        bar = Text(f"{words:<{cells}}"[:cells], style="red" if norm is not None and norm != 0 else "dim")
        return bar
    steps = len(glyphs.eighths)
    whole, part = divmod(max(1, round(_share(norm, axis) * cells * steps)), steps)
    drawn = glyphs.eighths[-1] * whole + (glyphs.eighths[part - 1] if part else "")
    style = _style(row) or "blue"
    bar = Text(f"{drawn:<{cells}}"[:cells], style=style)
    if _drawable(row.later_grad_norm):
        cell = min(cells - 1, max(0, round(_share(row.later_grad_norm, axis) * cells) - 1))
        bar = bar[:cell] + Text(glyphs.mark, style="bold") + bar[cell + 1 :]
    return bar


def _share(norm: float | None, axis: tuple[int, int]) -> float:
    """Return how far along the axis a norm lies, from 0 to 1."""
    low, high = axis
    assert norm is not None
    return min(1.0, max(0.0, (math.log10(norm) - low) / (high - low)))


def _style(row: Block) -> str | None:
    severities = {finding.severity for finding in row.findings}
    for severity in ("error", "warning"):
        if severity in severities:
            return SEVERITY_STYLES[severity].removeprefix("bold ")
    return None


def _draw_axis(axis: tuple[int, int], cells: int, left: int, console: Console, glyphs: Glyphs) -> None:
    """Print the axis with at most one label every ten cells."""
    low, high = axis
    span = high - low
    every = next(step for step in (1, 2, 3, 5, 10, 20, 50, 100, 200, 1000) if cells * step / span >= 10)  # noqa: PLR2004
    line, labels = [glyphs.rule] * cells, [" "] * (cells + 6)
    for power in range(low, high + 1, every):
        cell = min(cells - 1, round((power - low) / span * cells))
        line[cell] = glyphs.tick
        label = f"1e{power}"
        if cell + len(label) <= cells + 6:
            labels[cell : cell + len(label)] = label
    console.print(Text(" " * left + "".join(line), style="dim"), no_wrap=True, overflow="crop")
    console.print(Text(" " * left + "".join(labels).rstrip(), style="dim"), no_wrap=True, overflow="crop")


def _draw_heading(blocks: Blocks, name_cells: int, bar_cells: int, console: Console) -> None:
    """Head the two columns of numbers with their steps."""
    heading = " " * (2 + name_cells) + f"  {f'step {blocks.step}':>8}  " + " " * bar_cells
    heading += f"{f'step {blocks.later_step}':>9}"
    console.print(Text(heading, style="dim"), no_wrap=True, overflow="crop")
