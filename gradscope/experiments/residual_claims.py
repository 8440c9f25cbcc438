"""What the residual experiment's numbers say to the claims."""

from __future__ import annotations

import math
import statistics

from gradscope.experiments.residual_findings import LAYERS, VOCAB, Findings, Run, Start
from gradscope.experiments.result import Check, Claim
from gradscope.experiments.sources import BOTH, TUTORIAL
from gradscope.experiments.training import History, chance_loss

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
ABOUT_TEN_FROM, ABOUT_TEN_TO = 8, 12
"""What "from about ten layers" may mean."""


def judge(found: Findings) -> list[Claim]:
    """Turn the findings into claims."""
    return [
        _product_claim(),
        *_training_claims(found.runs),
        *_gradient_claims(found.starts, found.runs),
        _depth_claim(found.shallow, found.runs),
        _growth_claim(found.growth),
    ]


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
    smallest = min((profile[0] / profile[-1] for profile in ends.values()), default=math.nan)
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
                low=ABOUT_TEN_FROM,
                high=ABOUT_TEN_TO,
            ),
        ),
        f"Tried: {', '.join(map(str, sorted(losses)))} layers.",
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
