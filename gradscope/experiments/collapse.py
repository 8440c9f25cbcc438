"""How alike tokens become layer by layer, and what that does to queries and keys."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gradscope.experiments.result import Cell, Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import TUTORIAL
from gradscope.experiments.stations import decades_between, gradient_norms, parameter_norms, record_stream, token_cosine
from gradscope.variants import subject as make_subject

DESIGNS: tuple[tuple[str, str], ...] = (
    ("no-residual", "pytorch"),
    ("no-residual-post-ln", "pytorch"),
    ("post-ln", "pytorch"),
    ("post-ln", "xavier"),
    ("pre-ln", "pytorch"),
    ("pre-ln", "xavier"),
    ("deepnorm-encoder", "xavier"),
    ("lns", "pytorch"),
    ("depth-mup", "xavier"),
    ("rezero", "xavier"),
)
COLLAPSED = 0.99
"""Token cosine at step 0 from which the level is fail (docs/calibration.md)."""
STARVED = 1e-4
"""Ratio of query to value gradients from which the level is fail (docs/calibration.md)."""


@dataclass(frozen=True)
class Tokens:
    """One wiring before training.

    Attributes:
        cosines: Mean cosine between tokens after each block, the embedding first.
        query_to_value: Smallest |dW_q| / |dW_v| over blocks.
        decades: D, to set beside.
    """

    cosines: list[float]
    query_to_value: float
    decades: float


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Follow the tokens through every wiring."""
    layers, seeds = (24, 1) if quick else (48, 3)
    found: dict[tuple[str, str], list[Tokens]] = {}
    for done, (name, init) in enumerate(DESIGNS):
        progress(name, done, len(DESIGNS))
        found[name, init] = [_tokens(name, init, layers, seed) for seed in range(seeds)]
    progress("done", len(DESIGNS), len(DESIGNS))
    notes = [f"Before training, {layers} layers, width 64, 16 tokens, {seeds} seeds."]
    return _tables(found, layers), _claims(found), notes


def _tokens(name: str, init: str, layers: int, seed: int) -> Tokens:
    subject = make_subject(name, {"layers": layers, "init": init}, seed)
    stream, _ = record_stream(subject, next(iter(subject.batches)))
    norms = gradient_norms(stream)
    queries, values = (
        [parameter_norms(subject.model, f"blocks.{block}.attention.branch.{kind}.weight")[0] for block in range(layers)]
        for kind in ("q", "v")
    )
    ratios = [query / value for query, value in zip(queries, values, strict=True) if value > 0]
    return Tokens(
        [token_cosine(x) for x in stream], min(ratios, default=float("nan")), decades_between(norms[0], norms[-1])
    )


def _tables(found: dict[tuple[str, str], list[Tokens]], layers: int) -> list[Table]:
    looks = [depth for depth in (0, 1, 2, 4, 8, 12, 24, 48) if depth <= layers]
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            init,
            *(statistics.fmean(one.cosines[depth] for one in runs) for depth in looks),
            statistics.median(one.query_to_value for one in runs),
            statistics.fmean(one.decades for one in runs),
        )
        for (name, init), runs in found.items()
    ]
    return [
        table(
            "Mean cosine between the tokens of a sequence",
            ("wiring", "init", *(f"layer {depth}" for depth in looks), "smallest |dW_q| / |dW_v|", "D (decades)"),
            rows,
            "1 means that all tokens are the same. D stays near 0 while they become so.",
        )
    ]


def _end(runs: list[Tokens]) -> float:
    return statistics.fmean(one.cosines[-1] for one in runs)


def _claims(found: dict[tuple[str, str], list[Tokens]]) -> list[Claim]:
    skipless = [key for key in found if key[0].startswith("no-residual")]
    with_skips = [key for key in found if key not in skipless]
    collapsed = [key for key in found if _end(found[key]) > COLLAPSED]
    return [
        Claim(
            "Without skips information is lost layer by layer.",
            TUTORIAL,
            tuple(
                Check(" ".join(key), "token cosine after the last layer", _end(found[key]), low=COLLAPSED)
                for key in skipless
            ),
        ),
        Claim(
            "Residual connections preserve the original information.",
            TUTORIAL,
            tuple(
                Check(" ".join(key), "token cosine after the last layer", _end(found[key]), high=COLLAPSED)
                for key in with_skips
            ),
            "Not in every wiring: deep Post-LN with Xavier weights loses its tokens as surely as no skips at all.",
        ),
        Claim(
            "Where tokens have collapsed, queries and keys get no gradient.",
            "Noci et al. 2022",
            tuple(
                Check(
                    " ".join(key),
                    "smallest |dW_q| / |dW_v|",
                    statistics.median(one.query_to_value for one in found[key]),
                    high=STARVED,
                )
                for key in collapsed
            ),
        ),
        Claim(
            "A gradient of even size from end to start means a healthy network.",
            "what a norm profile suggests",
            tuple(
                Check(
                    f"{' '.join(key)}, |D| = {abs(statistics.fmean(one.decades for one in found[key])):.2f}",
                    "token cosine after the last layer",
                    _end(found[key]),
                    high=COLLAPSED,
                )
                for key in found
                if abs(statistics.fmean(one.decades for one in found[key])) < EVEN_DECADES
            ),
            "Norms alone do not see that all tokens have become one.",
        ),
    ]


EVEN_DECADES = 1.0
"""|D| below which the level is OK (docs/calibration.md)."""
