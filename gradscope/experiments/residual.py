"""The tutorials' headline experiment: the same ten-layer Transformer with and without its skips."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gradscope.experiments.result import Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import BOTH, TUTORIAL
from gradscope.experiments.stations import (
    decades_between,
    gradient_norms,
    parameter_norms,
    record_stream,
    token_cosine,
    total_decades,
)
from gradscope.experiments.training import History, chance_loss, token_accuracy, token_subject, train
from gradscope.target.subject import Subject
from gradscope.variants import subject as make_subject

VOCAB = 32
LAYERS = 10
"""The tutorial's depth."""
LR = 1e-3
VANISHED = 1e-3
"""Gradient ratio first/last below which the tutorial's "close to 0" is granted."""
EXPLODED = 1000.0
"""The tutorial's own number for exploded gradients."""
OSCILLATION_NATS = 1.0
"""A rise of the loss by this much would be the "violent" oscillation the tutorial describes."""
STUCK_SHARE = 0.9
"""A loss above this share of ln V has learnt next to nothing."""
PROMISED_ACCURACY = 0.85
"""The accuracy the tutorial promises with skips."""
TEN_DECADES_FIRST, TEN_DECADES_LAST = 8, 12
"""What "from about ten layers" may mean."""


@dataclass(frozen=True)
class Start:
    """One untrained network."""

    decades: float
    largest_gradient: float
    cosine: float
    query_to_value: float


@dataclass(frozen=True)
class Run:
    """One trained network, with its gradients on the way."""

    history: History
    profiles: dict[int, list[float]]
    largest: dict[int, float]


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Measure at the start, train both, find the depth where training fails, and follow D as depth grows."""
    seeds = 4 if quick else 30
    total = 4
    progress("networks before training", 0, total)
    starts = {name: [_start(name, seed) for seed in range(seeds)] for name in ("no-residual", "pre-ln")}
    progress("training with and without skips", 1, total)
    runs = {name: _train(name, quick) for name in ("no-residual", "pre-ln")}
    progress("shallower networks without skips", 2, total)
    shallow = _shallow((2, 4) if quick else (2, 4, 6, 8), 150 if quick else 400)
    progress("gradient against depth", 3, total)
    growth = _growth((10, 48), 1 if quick else 3)
    progress("done", total, total)
    tables = [
        _start_table(starts),
        _loss_table(runs),
        *_profile_tables(runs),
        _shallow_table(shallow),
        _growth_table(growth),
    ]
    claims = [
        _product_claim(),
        *_training_claims(runs),
        *_gradient_claims(starts, runs),
        _depth_claim(shallow, runs),
        _growth_claim(growth),
    ]
    notes = [
        f"Task: say a fixed permutation of the token before; {VOCAB} tokens, width 64, Adam, learning rate {LR:g}.",
        f"The networks before training are {seeds} initialisations; each trained network is one.",
    ]
    return tables, claims, notes


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


def _start_table(starts: dict[str, list[Start]]) -> Table:
    rows = []
    for name, found in starts.items():
        decades = [start.decades for start in found]
        rows.append(
            (
                name,
                statistics.fmean(decades),
                min(decades),
                max(decades),
                max(start.largest_gradient for start in found),
                statistics.fmean(start.cosine for start in found),
                statistics.median(start.query_to_value for start in found),
            )
        )
    return table(
        f"Before training, {LAYERS} layers",
        (
            "wiring",
            "D (decades)",
            "D lowest",
            "D highest",
            "largest parameter gradient",
            "token cosine at the end",
            "last |dW_q| / |dW_v|",
        ),
        rows,
        "D = log10(|g_0| / |g_L|). What is broken without skips is not the norms: all tokens have become the same.",
    )


def _loss_table(runs: dict[str, Run]) -> Table:
    num_steps = len(runs["pre-ln"].history.losses)
    steps = sorted({0, num_steps // 4, num_steps // 2, 3 * num_steps // 4, num_steps - 1})
    rows = [
        (name, *(_loss_at(one.history, step) for step in steps), one.history.accuracy) for name, one in runs.items()
    ]
    return table(
        "Training",
        ("wiring", *(f"loss at step {step}" for step in steps), "accuracy"),
        rows,
        f"Knowing nothing costs ln {VOCAB} = {chance_loss(VOCAB):.3f}.",
    )


def _loss_at(history: History, step: int) -> float | None:
    return history.losses[step] if step < len(history.losses) else None


def _profile_tables(runs: dict[str, Run]) -> list[Table]:
    tables = []
    for name, one in runs.items():
        steps = sorted(one.profiles)
        rows = [(layer, *(one.profiles[step][layer] for step in steps)) for layer in range(LAYERS + 1)]
        tables.append(
            table(
                f"Gradient norm along the stream, {name}",
                ("layer (0 = embedding)", *(f"step {step}" for step in steps)),
                rows,
            )
        )
    return tables


def _shallow_table(shallow: dict[int, History]) -> Table:
    rows = [(layers, one.final_loss, one.accuracy) for layers, one in shallow.items()]
    return table("Shallower networks without skips", ("layers", "final loss", "accuracy"), rows)


def _growth_table(growth: dict[tuple[str, str, int], float]) -> Table:
    rows = [(name, init, layers, decades) for (name, init, layers), decades in growth.items()]
    return table("D as depth grows, with skips", ("wiring", "init", "layers", "D (decades)"), rows)


def _product_claim() -> Claim:
    depth = 96
    return Claim(
        "Factors below one, say 0.9 a layer, make the gradient vanish over many layers; above one, say 1.1, explode.",
        TUTORIAL,
        (
            Check(f"{depth} layers", "0.9 to the power", 0.9**depth, high=VANISHED),
            Check(f"{depth} layers", "1.1 to the power", 1.1**depth, low=EXPLODED),
        ),
        "Arithmetic. In real networks the factors are random and their product is log-normal.",
    )


def _training_claims(runs: dict[str, Run]) -> list[Claim]:
    without, with_skips = runs["no-residual"].history, runs["pre-ln"].history
    chance = chance_loss(VOCAB)
    settled = History(without.losses[len(without.losses) // 10 :])
    return [
        Claim(
            "Without residual connections the loss does not converge and accuracy stays near chance.",
            TUTORIAL,
            (
                Check("no skips", "final loss / ln V", without.final_loss / chance, low=STUCK_SHARE),
                Check("no skips", "accuracy x V (1 = chance)", without.accuracy * VOCAB, high=3.0),
            ),
        ),
        Claim(
            "With residual connections it converges and reaches 85 % accuracy and more.",
            TUTORIAL,
            (
                Check("with skips", "accuracy", with_skips.accuracy, low=PROMISED_ACCURACY),
                Check("with skips", "final loss / ln V", with_skips.final_loss / chance, high=0.5),
            ),
        ),
        Claim(
            "Without residual connections the loss swings violently or diverges.",
            TUTORIAL,
            (Check("no skips", "largest rise of the loss (nats)", settled.swing, low=OSCILLATION_NATS),),
            f"It sits on the plateau at ln {VOCAB}: nothing is learnt, and nothing oscillates.",
        ),
    ]


def _gradient_claims(starts: dict[str, list[Start]], runs: dict[str, Run]) -> list[Claim]:
    without = runs["no-residual"]
    first = without.profiles[0]
    ends = {step: profile for step, profile in without.profiles.items() if step}
    smallest = min(profile[0] / profile[-1] for profile in ends.values())
    at_start = statistics.fmean(10**start.decades for start in starts["no-residual"])
    return [
        Claim(
            "Without residual connections the gradients of the first layers vanish.",
            TUTORIAL,
            (
                Check("before training", "|g_0| / |g_L|, mean over seeds", at_start, high=VANISHED),
                Check("in training", "|g_0| / |g_L|, smallest seen", smallest, high=VANISHED),
            ),
            f"They do not at the start ({first[0] / first[-1]:.2g} in the trained run); "
            "they do once training has driven the tokens together.",
        ),
        Claim(
            "Without residual connections the gradients of the last layers exceed 1000.",
            TUTORIAL,
            (
                Check(
                    "before training",
                    "largest parameter gradient norm",
                    max(start.largest_gradient for start in starts["no-residual"]),
                    low=EXPLODED,
                ),
                Check("in training", "largest parameter gradient norm", max(without.largest.values()), low=EXPLODED),
            ),
            "The norms in the blocks bound the last layers' gradients.",
        ),
        Claim(
            "Information degrades from layer to layer, like a message whispered along a row.",
            TUTORIAL,
            (
                Check(
                    "no skips, before training",
                    "mean cosine between tokens after the last layer",
                    statistics.fmean(start.cosine for start in starts["no-residual"]),
                    low=0.99,
                ),
            ),
            "This, not the size of gradients, is what is wrong at the start: the tokens can no longer be told apart.",
        ),
    ]


def _depth_claim(shallow: dict[int, History], runs: dict[str, Run]) -> Claim:
    losses = {
        **{layers: one.final_loss for layers, one in shallow.items()},
        LAYERS: runs["no-residual"].history.final_loss,
    }
    failing = [layers for layers, loss in sorted(losses.items()) if loss > 0.5 * chance_loss(VOCAB)]
    first_failing = float(min(failing)) if failing else math.inf
    return Claim(
        "From about ten layers on residual connections are required.",
        TUTORIAL,
        (
            Check(
                "no skips",
                "fewest layers that fail to train",
                first_failing,
                low=TEN_DECADES_FIRST,
                high=TEN_DECADES_LAST,
            ),
        ),
        f"Tried: {', '.join(map(str, sorted(losses)))} layers. They are needed far earlier.",
    )


def _growth_claim(growth: dict[tuple[str, str, int], float]) -> Claim:
    deepest = max(layers for _, _, layers in growth)
    checks = tuple(
        Check(f"{name}, {init} init, {layers} layers", "D (decades)", decades, low=-1.0, high=1.0)
        for (name, init, layers), decades in growth.items()
        if layers == deepest
    )
    return Claim(
        "With residual connections the gradient keeps its size however deep the network is.",
        BOTH,
        checks,
        "Skips need a norm, or small branches: without either the gradient explodes.",
    )
