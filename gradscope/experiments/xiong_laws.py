"""The laws of Xiong 2020 in the paper's own setting: the last gradient against depth and width, the stream's size."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.experiments.result import Cell, Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.xiong import last_gradient, mean_square, size_exponent

DEPTHS = (6, 12, 24, 48)
WIDTHS = (32, 64, 128, 256)
SHALLOW = 6
"""Blocks of the networks whose width is varied."""
MANY_CLASSES = 2048
"""Token ids there: so many that the head's own size does not depend on the width."""
WITHIN = 0.15
"""Distance of a measured exponent from the theorem's that its logarithms and a few seeds allow."""
PAPER = "Xiong et al. 2020, arXiv:2002.04745"

Gradients = dict[str, dict[int, float]]


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Measure both placements over depth and width."""
    seeds = 3 if quick else 8
    progress("the last gradient against depth", 0, 3)
    deep = {name: {depth: last_gradient(name, depth, seeds) for depth in DEPTHS} for name in ("post-ln", "pre-ln")}
    progress("the last gradient against width", 1, 3)
    wide = {
        name: {width: last_gradient(name, SHALLOW, seeds, width, MANY_CLASSES) for width in WIDTHS}
        for name in ("post-ln", "pre-ln")
    }
    progress("the size of the stream", 2, 3)
    squares = {
        # A forward pass is cheap, and few tokens are few numbers to average.
        name: {depth: mean_square(name, depth, 3 * seeds) for depth in DEPTHS}
        for name in ("post-ln", "pre-ln")
    }
    progress("done", 3, 3)
    notes = [
        "One head, queries and keys zero, Xavier weights, feed-forward as wide as the stream, ReLU, "
        f"{4 * 8} tokens, {seeds} seeds; before training.",
        "The theorem is about the gradient of one prediction. Over many tokens those of unlike tokens average out and "
        "those of collapsed ones do not, which would add a slope of its own.",
    ]
    return _tables(deep, wide, squares), [_depth_claim(deep), _width_claim(wide), *_stream_claims(squares)], notes


def _tables(deep: Gradients, wide: Gradients, squares: Gradients) -> list[Table]:
    def rows(found: Gradients) -> list[tuple[Cell, ...]]:
        return [(name, *values.values(), size_exponent(values)) for name, values in found.items()]

    sizes: list[tuple[Cell, ...]] = [(name, *values.values()) for name, values in squares.items()]
    sizes.append(("pre-ln, lower bound", *(1 + depth / 2 for depth in DEPTHS)))
    sizes.append(("pre-ln, upper bound", *(1 + 3 * depth / 2 for depth in DEPTHS)))
    return [
        table(
            "Gradient of the last feed-forward's second matrix",
            ("wiring", *(f"{depth} blocks" for depth in DEPTHS), "exponent"),
            rows(deep),
            "Theorem 1: exponent 0 for Post-LN, -1/2 for Pre-LN.",
        ),
        table(
            f"The same against width, {SHALLOW} blocks",
            ("wiring", *(f"width {width}" for width in WIDTHS), "exponent"),
            rows(wide),
            "Theorem 1: 1, up to the root of a logarithm.",
        ),
        table(
            "Mean square of the stream",
            ("wiring", *(f"{depth} blocks" for depth in DEPTHS)),
            sizes,
            "Lemma 2: 3/2 before the last norm of Post-LN; between 1 + L/2 and 1 + 3L/2 in Pre-LN.",
        ),
    ]


def _depth_claim(deep: Gradients) -> Claim:
    return Claim(
        "The last layer's gradient does not depend on depth in Post-LN and falls as 1/sqrt(L) in Pre-LN.",
        f"{PAPER}, theorem 1",
        tuple(
            Check(name, "exponent of depth", size_exponent(deep[name]), low=theory - WITHIN, high=theory + WITHIN)
            for name, theory in (("post-ln", 0.0), ("pre-ln", -0.5))
        ),
    )


def _width_claim(wide: Gradients) -> Claim:
    return Claim(
        "The last layer's gradient grows in proportion to the width.",
        f"{PAPER}, theorem 1",
        tuple(
            Check(name, "exponent of width", size_exponent(wide[name]), low=1 - WITHIN, high=1 + WITHIN)
            for name in ("post-ln", "pre-ln")
        ),
    )


def _stream_claims(squares: Gradients) -> list[Claim]:
    return [
        Claim(
            "In Post-LN the sum before a block's last norm has a mean square of 3/2.",
            f"{PAPER}, lemma 2",
            tuple(
                Check(f"{depth} blocks", "mean square", value, low=1.4, high=1.6)
                for depth, value in squares["post-ln"].items()
            ),
        ),
        Claim(
            "In Pre-LN the stream's mean square grows with depth, between 1 + L/2 and 1 + 3L/2.",
            f"{PAPER}, lemma 2",
            tuple(
                Check(f"{depth} blocks", "mean square", value, low=1 + depth / 2, high=1 + 3 * depth / 2)
                for depth, value in squares["pre-ln"].items()
            ),
        ),
    ]
