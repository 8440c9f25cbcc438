"""What the placement experiment's numbers say to the claims."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradscope.experiments.result import Check, Claim
from gradscope.experiments.sources import BOTH, HISTORY, TUTORIAL
from gradscope.experiments.training import SOLVED_SHARE
from gradscope.experiments.xiong import size_exponent

if TYPE_CHECKING:
    from gradscope.experiments.placement import Findings

XIONG = "Xiong et al. 2020, theorem 1"
EXPLODING_DECADES = 1.0
"""Growth toward the input that would count as exploding: outside the level of a healthy profile."""
DEEP_VOCAB = 16
"""Token ids of the hundred-layer run."""
FIVE_TIMES = (4.0, 6.0)
"""What "five times" may mean."""


def judge(found: Findings) -> list[Claim]:
    """Turn the findings into claims."""
    claims = [
        _post_ln_explodes(found),
        _norm_amplifies(found),
        _xiong(found),
        _needs_warmup(found),
        _insensitive(found),
        _activations(found),
        _complete(found),
        _five_times(found),
        _like_resnet(found),
    ]
    return [*claims, _hundred_layers(found)] if found.deep_loss is not None else claims


def _post_ln_explodes(found: Findings) -> Claim:
    checks = tuple(
        Check(f"{layers} layers, {init} init, before training", "D (decades)", decades, low=EXPLODING_DECADES)
        for (name, init, layers), decades in found.decades.items()
        if name == "post-ln"
    )
    return Claim(
        "In deep Post-LN networks (more than 12 layers) gradients tend to explode.",
        TUTORIAL,
        checks,
        "Positive D would be growth toward the input. What deep Post-LN loses is the difference between tokens.",
    )


def _norm_amplifies(found: Findings) -> Claim:
    return Claim(
        "Post-LN's gradients are amplified because values grow in the sum before they are normalised.",
        TUTORIAL,
        (Check("12 layers", "gradient factor of the norm after the sum", found.norm_factor, low=1.0),),
        "The norm divides the gradient by the standard deviation of the sum.",
    )


def _xiong(found: Findings) -> Claim:
    post, pre = (size_exponent(found.last_gradients[name]) for name in ("post-ln", "pre-ln"))
    return Claim(
        "The last layer's gradient does not depend on depth in Post-LN and falls as 1/sqrt(L) in Pre-LN.",
        XIONG,
        (
            Check("Post-LN", "exponent of depth", post, low=-0.2, high=0.2),
            Check("Pre-LN", "exponent of depth", pre, low=-0.7, high=-0.3),
        ),
    )


def _needs_warmup(found: Findings) -> Claim:
    without, with_warmup = found.largest("post-ln", False), found.largest("post-ln", True)
    return Claim(
        "Post-LN needs warmup.",
        TUTORIAL,
        tuple(
            Check(
                f"learning rate {rate:g}: what warmup gains",
                "loss without / loss with",
                _ratio(found.losses["post-ln", False][rate], found.losses["post-ln", True][rate]),
                low=2.0,
            )
            for rate in found.grid.rates
        ),
        f"The largest rate that trains goes from {without:g} to {with_warmup:g}: small rates need no warmup, "
        "and the largest are not saved by it.",
    )


def _insensitive(found: Findings) -> Claim:
    pre, post = found.losses["pre-ln", False], found.losses["post-ln", False]
    return Claim(
        "Pre-LN needs no warmup and is insensitive to the learning rate.",
        TUTORIAL,
        tuple(
            Check(f"Pre-LN, learning rate {rate:g}", "final loss (nats)", loss, high=found.grid.bar)
            for rate, loss in pre.items()
        ),
        f"Without warmup Pre-LN trains at {_trained(pre, found.grid.bar)} of {len(pre)} rates, "
        f"Post-LN at {_trained(post, found.grid.bar)}.",
    )


def _activations(found: Findings) -> Claim:
    shallow, deep = found.growth[False, 12], found.growth[False, 48]
    return Claim(
        "In Pre-LN activations stay in a fixed range and do not grow with depth.",
        TUTORIAL,
        (
            Check("what branches read, 48 layers", "root mean square", found.branch_input, high=2.0),
            Check("the residual stream, 48 against 12 layers", "ratio of root mean squares", deep / shallow, high=1.2),
        ),
        "What a branch reads is normalised; the stream itself grows with the root of the depth.",
    )


def _complete(found: Findings) -> Claim:
    return Claim(
        "A stack of Pre-LN blocks as printed is complete.",
        BOTH,
        (
            Check("no final norm, 48 layers", "root mean square the head reads", found.growth[False, 48], high=2.0),
            Check("with a final norm, 48 layers", "root mean square the head reads", found.growth[True, 48], high=2.0),
        ),
        "Neither article prints the norm between the last block and the head.",
    )


def _five_times(found: Findings) -> Claim:
    low, high = FIVE_TIMES
    rates = _ratio(found.largest("pre-ln", False), found.largest("post-ln", False))
    checks = [Check("largest learning rate, no warmup", "Pre-LN / Post-LN", rates, low=low, high=high)]
    for post_init, pre_init in (("pytorch", "pytorch"), ("xavier", "xavier"), ("xavier", "pytorch")):
        noise = _ratio(found.amplifications["post-ln", post_init, 16], found.amplifications["pre-ln", pre_init, 16])
        setting = f"output change under weight noise, 16 layers, Post-LN {post_init}, Pre-LN {pre_init}"
        checks.append(Check(setting, "Post-LN / Pre-LN", noise, low=low, high=high))
    return Claim(
        "Going from Post-LN to Pre-LN makes training five times more stable.",
        HISTORY,
        tuple(checks),
        "Stability has no unit: each yardstick gives its own factor.",
    )


def _like_resnet(found: Findings) -> Claim:
    return Claim(
        "Post-LN is closer to the residual networks' design.",
        TUTORIAL,
        tuple(
            Check(words, "change of the stream by a block whose branch adds nothing", change, low=0.1)
            for words, change in found.skip_changes.items()
        ),
        "Post-LN's norm stands on the stream, as the first residual networks' ReLU does; their second version, like "
        "Pre-LN, leaves the stream alone.",
    )


def _hundred_layers(found: Findings) -> Claim:
    assert found.deep_loss is not None
    return Claim(
        "Pre-LN trains networks of 100 layers and more.",
        BOTH,
        (
            Check(
                "100 layers, width 32, no warmup",
                "final loss (nats)",
                found.deep_loss,
                high=SOLVED_SHARE * math.log(DEEP_VOCAB),
            ),
        ),
    )


def _trained(losses: dict[float, float], bar: float) -> int:
    return sum(loss < bar for loss in losses.values())


def _ratio(above: float, below: float) -> float:
    if below == 0:
        return math.inf if above > 0 else math.nan
    return above / below
