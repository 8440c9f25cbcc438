"""Runs side by side in the terminal: a letter for each, verdicts, numbers, profiles."""

from __future__ import annotations

import string
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.gate.differences import Contender, Judgement, Measured, Profiles, Spread, codes
from gradscope.report.glyphs import Glyphs, glyphs_for
from gradscope.report.measures import measure_words
from gradscope.report.names import fit, fit_dotted, visible
from gradscope.report.numbers import brief, decades, nonfinite
from gradscope.report.terminal.layout import INDENT, draw_note, draw_title
from gradscope.report.terminal.verdict import VERDICT_STYLES, VERDICT_WORDS, verdict_sign

MAX_PLACES = 16
"""Places of the profile shown without --all."""

_JUDGED_STYLES: dict[Judgement, str] = {"better": "green", "worse": "red", "same": "dim", "": ""}


def draw_comparison(
    contenders: Sequence[Contender],
    numbers: Sequence[Measured],
    profiles: Profiles | None,
    console: Console,
    *,
    show_all: bool = False,
) -> None:
    """Print the comparison; the first run is what the others are judged against."""
    glyphs = glyphs_for(console.encoding)
    _draw_verdicts(contenders, console, glyphs)
    _draw_numbers(contenders, numbers, console, glyphs)
    if profiles is not None:
        _draw_profiles(contenders, profiles, console, glyphs, show_all=show_all)


def letters(number: int) -> list[str]:
    """Name the runs A, B, ... Z, A2, B2, ..."""
    alphabet = string.ascii_uppercase
    return [
        alphabet[place % len(alphabet)] + (str(place // len(alphabet) + 1) if place >= len(alphabet) else "")
        for place in range(number)
    ]


def _draw_verdicts(contenders: Sequence[Contender], console: Console, glyphs: Glyphs) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold", ratio=1)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=24)
    for letter, contender in zip(letters(len(contenders)), contenders, strict=True):
        verdict = contender.diagnosis.verdict
        sign = Text(f"{verdict_sign(verdict, glyphs)} {VERDICT_WORDS[verdict]}", style=VERDICT_STYLES[verdict])
        grid.add_row(letter, Text(_described(contender)), sign, Text(" ".join(codes(contender)), style="dim"))
    console.print(grid)


def _described(contender: Contender) -> str:
    arguments = contender.recordings[0].provenance.arguments
    words = [visible(contender.name), *(f"{visible(str(k))}={visible(str(v))}" for k, v in arguments.items())]
    seeds = len(contender.recordings)
    return " ".join(words) + (f" ({seeds} seeds)" if seeds > 1 else "")


def _draw_numbers(
    contenders: Sequence[Contender], numbers: Sequence[Measured], console: Console, glyphs: Glyphs
) -> None:
    if not numbers:
        return
    several = any(len(contender.recordings) > 1 for contender in contenders)
    draw_title(console, "Whole model", "mean and standard deviation over seeds" if several else "")
    grid = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    grid.add_column("")
    for letter in letters(len(contenders)):
        grid.add_column(letter, justify="right")
    for row in numbers:
        label, _ = measure_words(row.name)
        cells = [
            _value(row.name, value, judged, glyphs) for value, judged in zip(row.values, row.judgements, strict=True)
        ]
        grid.add_row(Text(label), *cells)
    console.print(Padding(grid, (0, 0, 0, INDENT)))
    if any(judged not in ("", "same") for row in numbers for judged in row.judgements):
        draw_note(console, "better and worse: than A, beyond what seeds and rounding explain")


def _value(name: str, value: Spread | None, judged: Judgement, glyphs: Glyphs) -> Text:
    if value is None:
        return Text(glyphs.missing, style="dim")
    text = Text(_number(name, value.mean))
    if value.deviation is not None:
        text.append(f" ±{value.deviation:.1g}", style="dim")
    if judged in ("better", "worse"):
        text.append(f" {judged}", style=_JUDGED_STYLES[judged])
    return text


def _number(name: str, value: float) -> str:
    if "decades" in name:
        return decades(value)
    return f"{value:.3f}" if name.endswith("cosine") else brief(value)


def _draw_profiles(
    contenders: Sequence[Contender], profiles: Profiles, console: Console, glyphs: Glyphs, *, show_all: bool
) -> None:
    how = "by block" if profiles.by_name else "by relative depth, since the blocks differ"
    draw_title(console, "Gradient along the stream", f"decades relative to the end, {how}")
    places = _shown(len(profiles.places), show_all=show_all)
    name_cells = max(8, console.width - 4 - 10 * len(contenders))
    grid = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    grid.add_column("input", no_wrap=True)
    for letter in letters(len(contenders)):
        grid.add_column(letter, justify="right", no_wrap=True)
    for place in places:
        name = profiles.places[place]
        shown = fit_dotted(name, name_cells, glyphs.ellipsis) if profiles.by_name else fit(name, name_cells)
        cells = [_profile_cell(value, glyphs) for value in profiles.values[place]]
        grid.add_row(Text(shown), *cells)
    console.print(Padding(grid, (0, 0, 0, INDENT)))
    if len(places) < len(profiles.places):
        draw_note(console, f"{len(places)} of {len(profiles.places)} places, evenly spaced (--all lists them)")


def _profile_cell(value: Spread | None, glyphs: Glyphs) -> Text:
    if value is None:
        return Text(glyphs.missing, style="dim")
    return Text(decades(value.mean) if value.mean == value.mean else nonfinite(value.mean))


def _shown(number: int, *, show_all: bool) -> list[int]:
    if show_all or number <= MAX_PLACES:
        return list(range(number))
    return sorted({round(slot * (number - 1) / (MAX_PLACES - 1)) for slot in range(MAX_PLACES)})
