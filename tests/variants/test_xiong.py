"""Xiong 2020 in the paper's setting: one head, uniform attention (queries and keys zero), Xavier, d_ff = d, ReLU.

Theorem 1: at initialisation the gradient of the last feed-forward's second matrix is O(d sqrt(ln d)) in Post-LN,
whatever the depth, and O(d sqrt(ln d / L)) in Pre-LN. Lemma 2: the Pre-LN stream's variance grows linearly.

The theorem is about the gradient of one prediction. Over a large batch the gradients of unlike tokens average out and
those of collapsed tokens do not, which adds a slope of its own, so the batch is kept small.
"""

from __future__ import annotations

import math
import statistics

import pytest
import torch

from gradscope.variants import subject
from gradscope.variants.initialise import branch_maps


def paper_setting(name: str, layers: int, width: int, seed: int, vocab: int = 64):
    built = subject(
        name,
        {"layers": layers, "d_model": width, "heads": 1, "d_ff": width, "activation": "relu", "init": "xavier",
         "vocab": vocab, "position_std": 0.0, "batch": 4, "tokens": 8},
        seed,
    )  # fmt: skip
    for kind, linear in branch_maps(built.model.blocks):
        if kind in ("q", "k"):
            torch.nn.init.zeros_(linear.weight)
    return built


def last_gradient(name: str, layers: int, width: int, seeds: int = 4, vocab: int = 64) -> float:
    norms = []
    for seed in range(seeds):
        built = paper_setting(name, layers, width, seed, vocab)
        batch = built.batches[0]
        built.loss(built.call(batch), batch).backward()
        norms.append(built.model.blocks[-1].mlp.branch.fc2.weight.grad.norm().item())
    return statistics.fmean(norms)


def exponent(xs, ys) -> float:
    """Least-squares slope in log-log."""
    lx, ly = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mx, my = statistics.fmean(lx), statistics.fmean(ly)
    return sum((a - mx) * (b - my) for a, b in zip(lx, ly, strict=True)) / sum((a - mx) ** 2 for a in lx)


DEPTHS = (6, 12, 24, 48)


@pytest.mark.parametrize(("name", "theory"), [("post-ln", 0.0), ("pre-ln", -0.5)])
def test_the_last_gradient_against_depth(name, theory):
    measured = exponent(DEPTHS, [last_gradient(name, depth, 64) for depth in DEPTHS])
    assert measured == pytest.approx(theory, abs=0.15)


@pytest.mark.parametrize("name", ["post-ln", "pre-ln"])
def test_the_last_gradient_against_width(name):
    """Exponent 1 up to the root of the logarithm; the many classes keep the head's own size from depending on d."""
    widths = (32, 64, 128, 256)
    measured = exponent(widths, [last_gradient(name, 6, width, vocab=2048) for width in widths])
    assert measured == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("layers", DEPTHS)
def test_the_streams_variance(layers):
    """Lemma 2: the expectation lies between 1 + L/2 and 1 + 3L/2 times d."""
    squares = []
    for seed in range(6):
        built = paper_setting("pre-ln", layers, 64, seed)
        with torch.no_grad():
            x = built.model.embed(built.batches[0][0])
            for block in built.model.blocks:
                x = block(x)
        squares.append(x.square().mean().item())
    assert 1 + layers / 2 <= statistics.fmean(squares) <= 1 + 3 * layers / 2
