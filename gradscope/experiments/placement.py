"""Post-LN against Pre-LN: gradients, learning rates, warmup, and how far weight noise is amplified."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gradscope.experiments.amplification import amplification
from gradscope.experiments.clean_skip import skip_changes
from gradscope.experiments.learning_rates import (
    FULL_GRID,
    QUICK_GRID,
    LearningRateGrid,
    Setting,
    largest_trainable,
    try_rates,
)
from gradscope.experiments.placement_claims import DEEP_VOCAB, judge
from gradscope.experiments.result import Cell, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.stations import norm, record_stream, token_cosine, total_decades
from gradscope.experiments.training import token_subject, train
from gradscope.experiments.xiong import last_gradient
from gradscope.variants import subject as make_subject

WIRINGS = ("post-ln", "pre-ln")
INITS = ("pytorch", "xavier")
DEEP = 100
"""Blocks that Pre-LN is said to reach."""


@dataclass(frozen=True)
class Findings:
    """Everything the experiment measured."""

    decades: dict[tuple[str, str, int], float]
    cosines: dict[tuple[str, str, int], float]
    norm_factor: float
    last_gradients: dict[str, dict[int, float]]
    growth: dict[tuple[bool, int], float]
    branch_input: float
    amplifications: dict[tuple[str, str, int], float]
    grid: LearningRateGrid
    losses: dict[Setting, dict[float, float]]
    deep_loss: float | None
    skip_changes: dict[str, float]

    def largest(self, wiring: str, warmed: bool) -> float:
        """Largest learning rate that trained the wiring."""
        return largest_trainable(self.losses.get((wiring, warmed), {}), self.grid.bar)


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Measure both wirings before training, then train them over a grid of learning rates."""
    grid = QUICK_GRID if quick else FULL_GRID
    settings: list[Setting] = [("post-ln", False), ("post-ln", True), ("pre-ln", False)]
    if not quick:
        settings.append(("pre-ln", True))
    total = 4 + len(settings) * len(grid.rates)
    done = itertools.count(1)

    def told(what: str = "training over learning rates") -> None:
        progress(what, next(done), total)

    depths = (12, 48) if quick else (12, 24, 48)
    decades, cosines = _profiles(depths, 1 if quick else 5)
    told("gradients before training")
    last = {
        name: {depth: last_gradient(name, depth, 2 if quick else 6) for depth in (6, 12, 24, 48)} for name in WIRINGS
    }
    told("the last layer's gradient against depth")
    growth = {(final, depth): _output_rms(final, depth) for final in (True, False) for depth in (12, 48)}
    noise = {
        (name, init, layers): _amplification(name, init, layers, 2 if quick else 6)
        for name, init, layers in itertools.product(WIRINGS, INITS, (6, 16))
    }
    told("weight noise")
    losses = try_rates(grid, settings, "pytorch", told)
    found = Findings(
        decades,
        cosines,
        _norm_factor(),
        last,
        growth,
        _branch_input(48),
        noise,
        grid,
        losses,
        None if quick else _deep_loss(),
        skip_changes(),
    )
    progress("done", total, total)
    return _tables(found), judge(found), _notes(found)


def _profiles(
    depths: Sequence[int], seeds: int
) -> tuple[dict[tuple[str, str, int], float], dict[tuple[str, str, int], float]]:
    decades, cosines = {}, {}
    for name, init, layers in itertools.product(WIRINGS, INITS, depths):
        subjects = [make_subject(name, {"layers": layers, "init": init}, seed) for seed in range(seeds)]
        decades[name, init, layers] = statistics.fmean(total_decades(subject) for subject in subjects)
        stream, _ = record_stream(subjects[0], next(iter(subjects[0].batches)))
        cosines[name, init, layers] = token_cosine(stream[-1])
    return decades, cosines


def _norm_factor() -> float:
    """Mean factor by which the norm after a Post-LN sum multiplies the gradient that passes through it."""
    subject = make_subject("post-ln", {"layers": 12}, 0)
    sums: list[torch.Tensor] = []
    outputs: list[torch.Tensor] = []

    def keep(_module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        inputs[0].retain_grad()
        output.retain_grad()
        sums.append(inputs[0])
        outputs.append(output)

    for name, module in subject.model.named_modules():
        if name.endswith("norm_after"):
            module.register_forward_hook(keep)
    record_stream(subject, next(iter(subject.batches)))
    ratios = [norm(a.grad) / norm(b.grad) for a, b in zip(sums, outputs, strict=True)]
    return statistics.geometric_mean(ratios)


@torch.no_grad()
def _output_rms(final_norm: bool, layers: int) -> float:
    """Root mean square of what the head reads, Pre-LN with and without its final norm."""
    subject = make_subject("pre-ln", {"layers": layers, "init": "xavier", "final_norm": final_norm}, 0)
    read: list[torch.Tensor] = []
    head = subject.model.get_submodule("head")
    head.register_forward_pre_hook(lambda _module, inputs: read.append(inputs[0]))
    subject.call(next(iter(subject.batches)))
    return float(read[0].square().mean().sqrt())


@torch.no_grad()
def _branch_input(layers: int) -> float:
    """Root mean square of what the last branch of a Pre-LN stack reads."""
    subject = make_subject("pre-ln", {"layers": layers, "init": "xavier"}, 0)
    read: list[torch.Tensor] = []
    branch = subject.model.get_submodule(f"blocks.{layers - 1}.mlp.branch")
    branch.register_forward_pre_hook(lambda _module, inputs: read.append(inputs[0]))
    subject.call(next(iter(subject.batches)))
    return float(read[0].square().mean().sqrt())


def _amplification(name: str, init: str, layers: int, seeds: int) -> float:
    subjects = [make_subject(name, {"layers": layers, "init": init}, seed) for seed in range(seeds)]
    return statistics.fmean(amplification(subject, seed) for seed, subject in enumerate(subjects))


def _deep_loss() -> float:
    subject = token_subject("pre-ln", 0, layers=DEEP, d_model=32, batch=8, vocab=DEEP_VOCAB)
    return train(subject, 250, 3e-3).final_loss


def _tables(found: Findings) -> list[Table]:
    profile = [
        (name, init, layers, decades, found.cosines[name, init, layers])
        for (name, init, layers), decades in found.decades.items()
    ]
    depths = sorted(next(iter(found.last_gradients.values())))
    last: list[tuple[Cell, ...]] = [
        (name, *(gradients[depth] for depth in depths)) for name, gradients in found.last_gradients.items()
    ]
    rates = [
        (name, "yes" if warmed else "no", *losses.values(), found.largest(name, warmed))
        for (name, warmed), losses in found.losses.items()
    ]
    noise = [(name, init, layers, value) for (name, init, layers), value in found.amplifications.items()]
    stream = [("with" if final else "without", layers, rms) for (final, layers), rms in found.growth.items()]
    headings = tuple(f"loss at {rate:g}" for rate in found.grid.rates)
    return [
        table(
            "Before training",
            ("wiring", "init", "layers", "D (decades)", "token cosine at the end"),
            profile,
            "D alone calls deep Post-LN healthy; its tokens are not.",
        ),
        table(
            "Gradient of the last feed-forward matrix in Xiong's setting",
            ("wiring", *(f"{depth} layers" for depth in depths)),
            last,
        ),
        table(
            f"Final loss by learning rate, {found.grid.arguments['layers']} layers, {found.grid.num_steps} steps",
            ("wiring", "warmup", *headings, "largest that trains"),
            rates,
            f"Trained means below {found.grid.bar:.2f}, half of chance.",
        ),
        table(
            "Relative output change under 1 % weight noise, divided by 1 %",
            ("wiring", "init", "layers", "amplification"),
            noise,
        ),
        table("What the head reads in Pre-LN", ("final norm", "layers", "root mean square"), stream),
    ]


def _notes(found: Findings) -> list[str]:
    sizes = ", ".join(f"{key} {value}" for key, value in found.grid.arguments.items())
    return [
        f"Learning rates: Adam, {sizes}, PyTorch's initialisation, one seed, warmup of {found.grid.warmup} steps.",
        "How much more stable Pre-LN is depends on the yardstick; each is given as a ratio.",
        f"Post-LN's norms multiply the gradient by {found.norm_factor:.3f} each."
        + (
            f" A {DEEP}-layer Pre-LN network reached a loss of {found.deep_loss:.3f}."
            if found.deep_loss is not None
            else ""
        ),
    ]
