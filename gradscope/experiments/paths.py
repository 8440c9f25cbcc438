"""Two to the n paths, the identity as a floor, and where the gradient's energy really is."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import torch
from torch import nn

from gradscope.experiments.path_energy import energies_by_length, mean_length
from gradscope.experiments.result import Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import TUTORIAL
from gradscope.experiments.stations import norm, record_stream
from gradscope.variants import subject as make_subject
from gradscope.variants.sublayer import Sublayer

WIDTH = 256
LINEAR_BLOCKS, SCALE = 20, 0.5
"""The stack x + a W x of the closed form: Binomial(L, a^2 / (1 + a^2)) branches on a path."""
SAME = 1e-5
"""Relative difference below which two sums are the same in float32."""


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Count paths, weigh them, and test the identity's floor."""
    layers = 8 if quick else 20
    seeds = 1 if quick else 3
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        progress("paths of a linear stack", 0, 3)
        linear = [_linear_energies() for _ in range(2 if quick else 10)]
        progress("paths of a Pre-LN Transformer", 1, 3)
        transformer = [_transformer_energies(layers, seed) for seed in range(seeds)]
        progress("identities", 2, 3)
        claims = [_count_claim(), _energy_claim(linear, transformer), _floor_claim(), _sum_claim()]
    progress("done", 3, 3)
    notes = [f"The Transformer has {layers} blocks, so {2 * layers} branches; Xavier initialisation, width 32."]
    return [_energy_table(linear, transformer)], claims, notes


def _linear_energies() -> list[float]:
    weights = [torch.randn(WIDTH, WIDTH) * (SCALE / math.sqrt(WIDTH)) for _ in range(LINEAR_BLOCKS)]
    branches = [lambda x, w=w: x @ w for w in weights]
    return energies_by_length(branches, torch.randn(4, WIDTH), torch.randn(4, WIDTH))


def _transformer_energies(layers: int, seed: int) -> list[float]:
    subject = make_subject("pre-ln", {"layers": layers, "d_model": 32, "init": "xavier", "batch": 4}, seed)
    stream, _ = record_stream(subject, next(iter(subject.batches)))
    sublayers = [module for module in subject.model.modules() if isinstance(module, Sublayer)]
    gradient = stream[-1].grad
    assert gradient is not None
    return energies_by_length([sublayer.compute_branch for sublayer in sublayers], stream[0].detach(), gradient)


def _mean(runs: Sequence[Sequence[float]]) -> float:
    return statistics.fmean(mean_length(run) for run in runs)


def _energy_table(linear: Sequence[Sequence[float]], transformer: Sequence[Sequence[float]]) -> Table:
    num_rows = 13
    p = SCALE**2 / (1 + SCALE**2)
    rows = []
    for length in range(num_rows):
        binomial = math.comb(LINEAR_BLOCKS, length) * p**length * (1 - p) ** (LINEAR_BLOCKS - length)
        rows.append((length, _share(linear, length), binomial, _share(transformer, length)))
    return table(
        "Share of the gradient's energy by the number of branches on the path",
        ("branches", f"x + {SCALE:g} W x, {LINEAR_BLOCKS} blocks", "binomial law", "Pre-LN Transformer"),
        rows,
    )


def _share(runs: Sequence[Sequence[float]], length: int) -> float:
    return statistics.fmean(run[length] / sum(run) if length < len(run) else 0.0 for run in runs)


def _count_claim() -> Claim:
    """Expand (I + A)(I + B)(I + C) into its terms and add them up again."""
    identity = torch.eye(16, dtype=torch.float64)
    jacobians = [torch.randn(16, 16, dtype=torch.float64) for _ in range(3)]
    whole = identity
    for jacobian in jacobians:
        whole = whole @ (identity + jacobian)
    terms = []
    for chosen in itertools.product((False, True), repeat=3):
        term = identity
        for take, jacobian in zip(chosen, jacobians, strict=True):
            term = term @ jacobian if take else term
        terms.append(term)
    error = float((sum(terms, torch.zeros_like(whole)) - whole).norm() / whole.norm())
    return Claim(
        "Three layers with skips have eight paths, n layers 2^n.",
        TUTORIAL,
        (
            Check("three layers", "terms of the Jacobian", float(len(terms)), low=8, high=8),
            Check("three layers", "relative error of their sum", error, high=1e-12),
        ),
    )


def _energy_claim(linear: Sequence[Sequence[float]], transformer: Sequence[Sequence[float]]) -> Claim:
    num_branches = len(transformer[0]) - 1
    expected = LINEAR_BLOCKS * SCALE**2 / (1 + SCALE**2)
    return Claim(
        "The gradient flows along any of these paths, long ones included.",
        TUTORIAL,
        (
            Check(
                f"x + {SCALE:g} W x, {LINEAR_BLOCKS} blocks",
                "mean branches on a path / half of all",
                _mean(linear) / (LINEAR_BLOCKS / 2),
                low=0.8,
            ),
            Check(
                f"Pre-LN, {num_branches} branches",
                "mean branches on a path / half of all",
                _mean(transformer) / (num_branches / 2),
                low=0.8,
            ),
        ),
        f"Were all paths alike, the mean would be half of all branches. It is {_mean(linear):.2f} of {LINEAR_BLOCKS} "
        f"(closed form {expected:g}) and {_mean(transformer):.2f} of {num_branches}: short paths carry the gradient.",
    )


def _floor_claim() -> Claim:
    x = torch.randn(64, WIDTH, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(64, WIDTH, dtype=torch.float64)
    constant = torch.randn(64, WIDTH, dtype=torch.float64)
    norm_after = nn.LayerNorm(WIDTH).double()
    cases = {
        "the branch has no gradient, x + constant": x + constant,
        "the branch cancels, x - x": x + -1 * x,
        "the branch cancels half, x - x/2": x - 0.5 * x,
        "Post-LN, the branch has no gradient, N(x + constant)": norm_after(x + constant),
    }
    checks = []
    for setting, y in cases.items():
        (gradient,) = torch.autograd.grad(y, x, upstream)
        checks.append(Check(setting, "|gradient before| / |gradient after|", norm(gradient) / norm(upstream), low=1.0))
    return Claim(
        "With a residual connection the gradient keeps at least its value 1, however small the branch's gradient is.",
        TUTORIAL,
        tuple(checks),
        "The identity is one term of a sum: a branch can cancel it, and a norm after the sum scales it.",
    )


def _sum_claim() -> Claim:
    checks = [
        Check(f"{name}, 12 blocks", "|X_n - X_0 - sum of branches| / |X_n|", _sum_error(name), high=SAME)
        for name in ("residual-no-norm", "pre-ln", "post-ln")
    ]
    return Claim(
        "The output is the input plus the sum of all layers' corrections.",
        TUTORIAL,
        tuple(checks),
        "Post-LN rescales the sum in every sublayer.",
    )


@torch.no_grad()
def _sum_error(name: str) -> float:
    subject = make_subject(name, {"layers": 12, "init": "pytorch"}, 0)
    x = start = subject.model.get_submodule("embed")(next(iter(subject.batches))[0])
    total = torch.zeros_like(x)
    for sublayer in subject.model.modules():
        if isinstance(sublayer, Sublayer):
            total += sublayer.compute_branch(x)
            x = sublayer(x)
    return norm(x - start - total) / norm(x)
