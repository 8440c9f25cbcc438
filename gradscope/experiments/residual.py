"""The tutorials' headline experiment: the same ten-layer Transformer with and without its skips."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gradscope.experiments.residual_claims import judge
from gradscope.experiments.residual_findings import LAYERS, LR, VOCAB, Findings, Run, Start
from gradscope.experiments.residual_tables import draw
from gradscope.experiments.result import Claim, Table
from gradscope.experiments.running import Progress
from gradscope.experiments.stations import (
    decades_between,
    gradient_norms,
    parameter_norms,
    record_stream,
    token_cosine,
    total_decades,
)
from gradscope.experiments.training import History, token_accuracy, token_subject, train
from gradscope.target.subject import Subject
from gradscope.variants import subject as make_subject


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Measure at the start, train both, find the depth where training fails, and follow D as depth grows."""
    seeds = 4 if quick else 30
    total = 4
    progress("networks before training", 0, total)
    starts = {name: [_start(name, seed) for seed in range(seeds)] for name in ("no-residual", "pre-ln")}
    progress("training with and without skips", 1, total)
    runs = {name: _train(name, quick) for name in ("no-residual", "pre-ln")}
    progress("shallower networks without skips", 2, total)
    shallow = _shallow((2, 4) if quick else (2, 4, 6, 8), 250 if quick else 400)
    progress("gradient against depth", 3, total)
    growth = _growth((10, 48), 1 if quick else 3)
    progress("done", total, total)
    found = Findings(starts, runs, shallow, growth)
    notes = [
        f"Task: say a fixed permutation of the token before; {VOCAB} tokens, width 64, Adam, learning rate {LR:g}.",
        f"The networks before training are {seeds} initialisations; each trained network is one.",
    ]
    return draw(found), judge(found), notes


def _start(name: str, seed: int) -> Start:
    subject = make_subject(name, {"layers": LAYERS}, seed)
    stream, _ = record_stream(subject, next(iter(subject.batches)))
    norms = gradient_norms(stream)
    last = f"blocks.{LAYERS - 1}.attention.branch"
    query, value = (
        parameter_norms(subject.model, f"{last}.q.weight")[0],
        parameter_norms(subject.model, f"{last}.v.weight")[0],
    )
    return Start(
        decades_between(norms[0], norms[-1]),
        max(parameter_norms(subject.model, "blocks")),
        token_cosine(stream[-1]),
        query / value,
    )


def _train(name: str, quick: bool) -> Run:
    num_steps = 120 if quick else 400
    subject = token_subject(name, 0, layers=LAYERS, batch=16 if quick else 32)
    profiles: dict[int, list[float]] = {}
    largest: dict[int, float] = {}
    looks = {0, num_steps // 4, num_steps // 2, num_steps - 1}

    def look(step: int) -> None:
        if step in looks:
            stream, _ = record_stream(subject, next(iter(subject.batches)))
            profiles[step] = gradient_norms(stream)
            largest[step] = max(parameter_norms(subject.model, "blocks"))

    history = train(subject, num_steps, LR, before_step=look)
    history.accuracy = token_accuracy(subject)
    return Run(history, profiles, largest)


def _shallow(depths: Sequence[int], num_steps: int) -> dict[int, History]:
    histories = {}
    for layers in depths:
        subject = token_subject("no-residual", 0, layers=layers)
        histories[layers] = train(subject, num_steps, LR)
        histories[layers].accuracy = token_accuracy(subject)
    return histories


def _growth(depths: Sequence[int], seeds: int) -> dict[tuple[str, str, int], float]:
    found = {}
    for name, init in (("pre-ln", "pytorch"), ("pre-ln", "xavier"), ("residual-no-norm", "xavier")):
        for layers in depths:
            values = [total_decades(_built(name, layers, init, seed)) for seed in range(seeds)]
            found[name, init, layers] = statistics.fmean(values)
    return found


def _built(name: str, layers: int, init: str, seed: int) -> Subject:
    return make_subject(name, {"layers": layers, "init": init}, seed)
