"""Ten kinds of models, as hand-built recordings, and the reports of them."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradscope.record import Columns, Recording
from gradscope.rules import diagnose
from gradscope.rules.finding import Diagnosis
from tests.html import hostile, large
from tests.support.recordings import add, build, stack


def with_signals(recording: Recording) -> Recording:
    """Add what the signal and precision views draw."""
    tables: dict[str, Columns] = {
        name: {column: list(values) for column, values in table.items()} for name, table in recording.tables.items()
    }
    places = tables["stream"]["name"]
    for step in recording.watched_steps:
        for place, name in enumerate(places):
            share = place / len(places)
            for metric, value in (
                ("token_cosine", 0.6 * share), ("sample_cosine", share / 2), ("saturated_fraction", 0.1),
                ("dead_fraction", 0.02),
                ("attention_entropy", 0.9), ("activation_peak", 4 + share), ("absorption_bf16", 0.1),
                ("absorption_fp16", 0.01),
            ):  # fmt: skip
                add(tables["observations"], step=step, metric=metric, module=name, call=0, value=value)
            for kind in ("activation", "parameter"):
                counts = [round(1000 * math.exp(-(((octave - 12) / 4) ** 2))) for octave in range(25)]
                add(
                    tables["histograms"],
                    step=step,
                    name=name,
                    kind=kind,
                    first_log2=-32,
                    counts=counts,
                    zeros=9,
                    nonfinite=0,
                )
        add(tables["observations"], step=step, metric="jacobian_anisotropy", module="", call=0, value=3.2)
    add(tables["confessions"], what="largest activations of `rnn`", why="the module returns a packed sequence")
    return build(tables, **vars(recording.provenance))


def nonfinite() -> Recording:
    """Build a stack whose gradient is NaN from the middle down."""
    recording = stack(12)
    tables = {
        name: {column: list(values) for column, values in table.items()} for name, table in recording.tables.items()
    }
    for table, key in (("stream_stats", "station"), ("site_stats", "site"), ("call_stats", "call")):
        rows = tables[table]
        for row, place in enumerate(rows[key]):
            if place < 6:
                rows["grad_norm"][row] = math.nan
    add(
        tables["events"],
        step=0,
        kind="nonfinite_backward",
        module="layers.6",
        call=0,
        op="div",
        file="model.py",
        line=9,
    )
    return build(tables, **vars(recording.provenance))


def dead() -> Recording:
    """Build a stack with a gradient of exactly zero in its lower half."""
    recording = stack(12, residual=False)
    tables = {
        name: {column: list(values) for column, values in table.items()} for name, table in recording.tables.items()
    }
    tables["stream_stats"]["grad_norm"] = [
        0.0 if place < 6 else norm
        for place, norm in zip(tables["stream_stats"]["station"], tables["stream_stats"]["grad_norm"], strict=True)
    ]
    return build(tables, **vars(recording.provenance))


MODELS: dict[str, Callable[[], Recording]] = {
    "healthy": lambda: with_signals(stack(24, forward_ratio=0.2, stream_growth=0.01)),
    "vanishing": lambda: with_signals(stack(24, decades_per_block=-0.3, residual=False)),
    "exploding": lambda: stack(48, decades_per_block=0.2),
    "swamped": lambda: stack(12, forward_ratio=40.0),
    "one-step": lambda: stack(12, steps=(0,)),
    "many-steps": lambda: stack(6, steps=tuple(range(20))),
    "nonfinite": nonfinite,
    "dead": dead,
    "empty": lambda: build({}),
    "large": large.recording,
}


def diagnosed(name: str) -> tuple[Recording, Diagnosis]:
    """Build one of the models, or the hostile one, and judge it."""
    if name == "hostile":
        return hostile.recording(), hostile.diagnosis()
    recording = MODELS[name]()
    return recording, diagnose(recording)
