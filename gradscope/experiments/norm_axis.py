"""BatchNorm against LayerNorm: what the axis of the statistics changes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from gradscope.experiments.result import Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import BOTH, TUTORIAL

BATCH_SIZES = (2, 4, 8, 32, 256)
WIDTH = 64
SAME = 1e-6
"""Difference below which outputs are the same."""
NORM_RELU_FACTOR = math.sqrt(math.pi / (math.pi - 1))
"""Gradient growth per norm-ReLU layer without skips (Yang 2019): 1.2112."""
SMALL_BATCH_ERROR = 0.1
"""Relative error of the standard deviation beyond which a statistic is poor."""


@dataclass(frozen=True)
class Findings:
    """Everything the experiment measured."""

    std_errors: dict[int, float]
    neighbours: dict[str, float]
    eval_gaps: dict[str, float]
    layer_norm_error: float
    factors: dict[str, float]
    single_1d: bool
    single_2d: bool
    axes: dict[str, tuple[float, float]]


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Measure statistics, dependence on neighbours, the gap between modes, and the gradient through deep stacks."""
    progress("statistics by batch size", 0, 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        errors = {size: _std_error(size, 200 if quick else 2000) for size in BATCH_SIZES}
        neighbours = {name: _neighbour_effect(make) for name, make in NORMS.items()}
        gaps = {name: _eval_gap(make) for name, make in NORMS.items()}
        axes = {name: _axis_error(make) for name, make in NORMS.items()}
        single = (_accepts(nn.BatchNorm1d(4), (1, 4)), _accepts(nn.BatchNorm2d(4), (1, 4, 8, 8)))
        progress("gradients through deep stacks", 1, 2)
        factors = {name: _growth_factor(layer, 2 if quick else 10) for name, layer in STACKS.items()}
    progress("done", 2, 2)
    found = Findings(errors, neighbours, gaps, _token_independence(), factors, *single, axes)
    return _tables(found), _claims(found), [f"Width {WIDTH}, standard normal inputs."]


MakeNorm = Callable[[], nn.Module]

NORMS: dict[str, MakeNorm] = {
    "BatchNorm": lambda: nn.BatchNorm1d(WIDTH),
    "LayerNorm": lambda: nn.LayerNorm(WIDTH),
    "GroupNorm": lambda: nn.GroupNorm(NUM_GROUPS, WIDTH),
}
NUM_GROUPS = 4
LAYERS, STACK_WIDTH, STACK_BATCH = 20, 256, 256
"""Size of the stacks without skips: wide and large enough for the closed forms."""

Layer = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``layer(x, W)``."""

STACKS: dict[str, Layer] = {
    "relu(BatchNorm(W x))": lambda x, w: F.relu(F.batch_norm(x @ w, None, None, training=True)),
    "relu(W LayerNorm(x))": lambda x, w: F.relu(F.layer_norm(x, x.shape[1:]) @ w),
    "relu(LayerNorm(W x))": lambda x, w: F.relu(F.layer_norm(x @ w, x.shape[1:])),
    "W LayerNorm(x)": lambda x, w: F.layer_norm(x, x.shape[1:]) @ w,
}


def _std_error(batch: int, draws: int) -> float:
    """Root mean square relative error of a feature's standard deviation over a batch."""
    std = torch.randn(draws, batch).std(dim=1, unbiased=False)
    return float((std - 1).square().mean().sqrt())


def _neighbour_effect(make: MakeNorm) -> float:
    """How far the first sample's output moves when the rest of its batch is replaced."""
    norm = make()
    x, other = torch.randn(2, 8, WIDTH)
    mixed = torch.cat([x[:1], 3 * other[1:] + 1])
    return float((norm(x)[0] - norm(mixed)[0]).detach().abs().max())


def _eval_gap(make: MakeNorm) -> float:
    """Relative difference between training and evaluation output after 20 batches of 4."""
    norm = make()
    for _ in range(20):
        norm(2 * torch.randn(4, WIDTH) + 1)
    x = 2 * torch.randn(4, WIDTH) + 1
    trained, evaluated = norm.train()(x), norm.eval()(x)
    return float(((trained - evaluated).norm() / trained.norm()).detach())


def _axis_error(make: MakeNorm) -> tuple[float, float]:
    """Largest mean of the output along the batch, and along the features."""
    y = make()(2 * torch.randn(32, WIDTH) * torch.linspace(0.1, 3, WIDTH) + 5)
    return float(y.mean(0).detach().abs().max()), float(y.mean(1).detach().abs().max())


def _accepts(norm: nn.Module, shape: tuple[int, ...]) -> bool:
    try:
        norm.train()(torch.randn(shape))
    except ValueError:
        return False
    return True


def _token_independence() -> float:
    """Difference between LayerNorm of a padded batch and of its sequences alone, on the real tokens."""
    norm, long, short = nn.LayerNorm(WIDTH), torch.randn(14, WIDTH), torch.randn(2, WIDTH)
    padded = torch.zeros(2, 14, WIDTH)
    padded[0], padded[1, :2] = long, short
    return float((norm(padded)[1, :2] - norm(short)).detach().abs().max())


def _growth_factor(layer: Layer, draws: int) -> float:
    """Gradient growth per layer toward the input: He weights, a random gradient at the end, geometric mean."""
    logs = []
    for _ in range(draws):
        x = torch.randn(STACK_BATCH, STACK_WIDTH).relu().requires_grad_()
        start = layer(x, _weight())
        y = start
        for _ in range(LAYERS):
            y = layer(y, _weight())
        end_gradient = torch.randn_like(y)
        (start_gradient,) = torch.autograd.grad(y, start, end_gradient)
        logs.append(math.log(float(start_gradient.norm() / end_gradient.norm())))
    return math.exp(statistics.fmean(logs) / LAYERS)


def _weight() -> torch.Tensor:
    return torch.randn(STACK_WIDTH, STACK_WIDTH) * math.sqrt(2 / STACK_WIDTH)


def _tables(found: Findings) -> list[Table]:
    return [
        table(
            "Error of BatchNorm's standard deviation",
            ("batch size", "relative error"),
            list(found.std_errors.items()),
            "Root mean square over draws; about 1/sqrt(2 B).",
        ),
        table(
            "What a sample's output depends on",
            (
                "norm",
                "change when its neighbours change",
                "training against evaluation",
                "mean over batch",
                "mean over features",
            ),
            [(name, found.neighbours[name], found.eval_gaps[name], *found.axes[name]) for name in NORMS],
        ),
        table(
            "Gradient growth per layer without skips",
            ("stack", "factor toward the input"),
            list(found.factors.items()),
            f"sqrt(pi / (pi - 1)) = {NORM_RELU_FACTOR:.4f}.",
        ),
    ]


def _claims(found: Findings) -> list[Claim]:
    return [
        Claim(
            "BatchNorm normalises each feature over the samples, LayerNorm each sample over its features.",
            TUTORIAL,
            (
                Check("BatchNorm", "largest mean over the batch", found.axes["BatchNorm"][0], high=1e-5),
                Check("LayerNorm", "largest mean over the features", found.axes["LayerNorm"][1], high=1e-5),
            ),
        ),
        Claim(
            "LayerNorm depends on the sample alone, BatchNorm on the others in its batch.",
            BOTH,
            (
                Check("LayerNorm", "change when neighbours change", found.neighbours["LayerNorm"], high=0.0),
                Check("BatchNorm", "change when neighbours change", found.neighbours["BatchNorm"], low=0.1),
            ),
        ),
        Claim(
            "With LayerNorm padding needs no special treatment.",
            TUTORIAL,
            (Check("2 tokens padded to 14", "largest difference on real tokens", found.layer_norm_error, high=SAME),),
        ),
        Claim(
            "BatchNorm's statistics are poor in small batches.",
            BOTH,
            tuple(
                Check(
                    f"batch {size}",
                    "relative error of the standard deviation",
                    found.std_errors[size],
                    low=SMALL_BATCH_ERROR,
                )
                for size in (2, 4, 8, 32)
            ),
        ),
        Claim(
            "GroupNorm suits the small batches of object detection.",
            TUTORIAL,
            (
                Check("GroupNorm", "change when neighbours change", found.neighbours["GroupNorm"], high=0.0),
                Check("GroupNorm", "training against evaluation", found.eval_gaps["GroupNorm"], high=0.0),
                Check("BatchNorm, batch 2", "relative error of the standard deviation", found.std_errors[2], low=0.1),
            ),
            "Its statistics are each sample's own. That it wins at detection is Wu & He 2018, not measured here.",
        ),
        Claim(
            "BatchNorm behaves differently in training and evaluation, LayerNorm does not.",
            TUTORIAL,
            (
                Check("BatchNorm, batches of 4", "relative difference", found.eval_gaps["BatchNorm"], low=0.1),
                Check("LayerNorm", "relative difference", found.eval_gaps["LayerNorm"], high=0.0),
            ),
        ),
        Claim(
            "BatchNorm cannot work with a batch of one.",
            TUTORIAL,
            (
                Check("BatchNorm1d, training", "accepts one sample (1 = yes)", float(found.single_1d), high=0.0),
                Check("BatchNorm2d, training", "accepts one image (1 = yes)", float(found.single_2d), high=0.0),
            ),
            "BatchNorm2d has the pixels of its one image to average over.",
        ),
        Claim(
            "Normalisation keeps the gradient's scale from layer to layer.",
            BOTH,
            tuple(
                Check(f"{name}, no skips", "growth per layer", found.factors[name], low=0.97, high=1.03)
                for name in STACKS
            ),
            "Where a norm takes the mean out of rectified values the gradient grows by sqrt(pi / (pi - 1)) = 1.2112 a "
            "layer, however the weights are drawn.",
        ),
    ]
