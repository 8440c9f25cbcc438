"""What was inspected, and how its inputs and its loss were found."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from gradscope.record import Provenance, Recording
from gradscope.report.glyphs import Glyphs
from gradscope.report.names import visible
from gradscope.report.numbers import plural
from gradscope.report.terminal.layout import draw_pairs, joined

_PLACEMENTS = {
    "pre": "pre-norm",
    "post": "post-norm",
    "sandwich": "norm before and after",
    "output": "norm at the branch's end",
    "none": "no norm",
}


def draw_header(recording: Recording, console: Console, glyphs: Glyphs) -> None:
    """Print the target and where each ingredient of the step came from."""
    provenance = recording.provenance
    title = Text(visible(provenance.target), style="bold", overflow="fold")
    for key, value in provenance.arguments.items():
        title.append(f"  {visible(str(key))}={visible(str(value))}", style="not bold")
    console.print(title)
    pairs = [
        ("model", joined(_model(recording), glyphs)),
        *(("note", Text(visible(note), overflow="fold")) for note in provenance.notes),
        ("inputs", _origin(provenance.inputs, provenance.inputs_synthetic, provenance.batch_shape, glyphs)),
        ("loss", _origin(provenance.loss, provenance.loss_synthetic, "", glyphs)),
        ("run", joined(_run(recording), glyphs)),
    ]
    draw_pairs(console, pairs)
    if provenance.partial:
        ended = Text("the watching ended early; what had been measured is shown", style="yellow")
        draw_pairs(console, [("partial", ended)])


def _model(recording: Recording) -> list[str]:
    modules = recording.tables["modules"]
    root = modules["type"][0] if modules["type"] else ""
    parts = [visible(root)] if root else []
    parts.append(plural(recording.provenance.num_parameters, "parameter"))
    blocks = {block for block in recording.tables["stream"]["block"] if block is not None}
    if blocks:
        parts.append(plural(len(blocks), "block"))
    parts.append(_additions(recording))
    return parts


def _additions(recording: Recording) -> str:
    sites = [row for row in recording.rows("sites") if row["counted"]]
    if not sites:
        return "no residual additions"
    placements = Counter(row["placement"] for row in sites if row["placement"])
    wording = [_PLACEMENTS.get(placement, str(placement)) for placement, _ in placements.most_common(2)]
    said = f" ({', '.join(wording)})" if wording else ""
    return plural(len(sites), "residual addition") + said


def _origin(text: str, synthetic: bool, shape: str, glyphs: Glyphs) -> Text:
    origin = Text(visible(text))
    if shape and shape.split(maxsplit=1)[0] not in text:
        origin.append(f" {glyphs.dot} ", style="dim").append(visible(shape))
    if synthetic:
        origin.append("  synthetic", style="yellow")
    return origin


def _run(recording: Recording) -> list[str]:
    provenance = recording.provenance
    steps = recording.watched_steps
    parts = [f"step {steps[0]}" if len(steps) == 1 else _steps(steps)] if steps else ["no step finished"]
    if provenance.optimizer and provenance.num_steps > 1:
        rate = "" if provenance.lr is None else f", lr {provenance.lr:g}"
        parts.append(f"{visible(provenance.optimizer)}{rate}")
    parts += [f"{provenance.device} {provenance.dtype}", f"{provenance.mode} mode", _seed(provenance)]
    return parts


def _steps(steps: list[int]) -> str:
    shown = ", ".join(map(str, steps)) if len(steps) <= 6 else f"{steps[0]}, {steps[1]}, ... {steps[-1]}"  # noqa: PLR2004
    return f"steps {shown}"


def _seed(provenance: Provenance) -> str:
    return "seed left alone" if provenance.seed is None else f"seed {provenance.seed}"
