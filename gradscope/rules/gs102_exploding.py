"""GS102: the gradient grows on its way to the first block, beyond what a growing stream explains."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.columns import middle
from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.metrics.output import has_learnt
from gradscope.rules import levels
from gradscope.rules.culprit import Place, depth_culprit, station_label, station_module, surroundings
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.lasting import lasting_growth
from gradscope.rules.numbers import count, factor, signed
from gradscope.rules.with_depth import FEWEST_BLOCKS, levels_in_force, slope_evidence, when

FAINT_DECADES = 1.0
"""Decades (log10) of what is explained that come from faint tokens, to name these instead of the growing stream."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Compare the excess at the first and the last watched step with the optimizer's levels; the worse one counts."""
    if facts.runs_through_time:
        return []
    fail, warn = levels_in_force(facts, thresholds)
    grown = [(p, excess) for p in facts.judged_profiles if (excess := facts.excess_decades(p)) is not None]
    for limit in (fail, warn):
        for profile, excess in grown:
            if excess >= limit:
                return [_finding(facts, profile, excess, (fail, warn), lasts=lasting_growth(facts) >= fail)]
    return []


def _finding(
    facts: Facts, profile: DepthProfile, excess: float, limit: tuple[float, float], *, lasts: bool
) -> Finding:
    fail, warn = limit
    decades = profile.decades or 0.0
    predicted = facts.predicted_decades(profile.step)
    place = depth_culprit(profile, decades)
    slope = profile.decades_per_block
    severe = lasts and profile.num_blocks >= FEWEST_BLOCKS
    learnt = not severe and has_learnt(facts)
    first, last = station_label(profile.stations[0]), station_label(profile.stations[profile.ends[-1]])
    module = station_module(place.station)
    file, line = facts.place(module)
    faint = facts.faint_rows_decades(profile.step) >= FAINT_DECADES
    why = "tokens that start at next to nothing explain" if faint else "the growing stream explains"
    explained = f", of which {why} {predicted:.1f}" if predicted and predicted > 0 else ""
    alone = f", {place.jump_decades or 0:.1f} of them in `{module}` alone" if place.alone else ""
    per_block = ""
    if slope and not place.alone:
        per_block = f", {signed(slope.mean)} per block over {count(profile.num_blocks, 'block')}"
    return Finding(
        code="GS102",
        severity="error" if severe else "warning",
        module=module,
        call=place.station.call,
        message=(
            f"The gradient grows {factor(decades)} times ({signed(decades)} decades{explained}{alone}{per_block}) on "
            f"its way from `{last}` back to `{first}`{when(profile)}."
            + _outlook(learnt=learnt, calmed=excess >= fail and not lasts)
        ),
        evidence={
            "decades": decades,
            "predicted_decades": predicted,
            "excess_decades": excess,
            "threshold_decades": fail if severe else warn,
            **slope_evidence(profile),
            "forward_ratio": middle(site.forward_ratio for site in facts.sites if site.on_stream),
            "step": profile.step,
            "learnt": learnt,
        },
        advice=_advice(facts, place),
        file=file,
        line=line,
    )


def _outlook(*, learnt: bool, calmed: bool) -> str:
    if learnt:
        return " It does not keep the network from learning: within the watched steps the loss is all but gone."
    return " The first steps calm it, so it may still train." if calmed else ""


def _advice(facts: Facts, place: Place) -> str:
    around = surroundings(facts)
    if place.alone:
        return (
            f"Look at `{station_module(place.station)}` first: the gradient grows there more than everywhere else "
            "together (a division by a small number, a norm over a tiny input, or a large weight)."
        )
    if around.has_skips and not around.normalised_branches and not around.post_norm:
        return (
            "Normalise what each branch reads, x + f(norm(x)); or scale the branches by 1/sqrt(number of branches); "
            "or start them at zero (ReZero, SkipInit, Fixup). An unnormalised residual stream multiplies its "
            "variance in every block."
        )
    if around.output_norm_only and around.has_attention:
        return (
            "Normalise queries and keys too: with norms only on the branch outputs the attention logits grow with the "
            "stream."
        )
    if around.has_skips:
        return (
            "The growth is not that of a Pre-LN stream. Check the branch whose backward ratio is far above its "
            "forward ratio: attention without QK-norm or a norm over a small input."
        )
    if around.has_norms:
        return (
            "Add shortcuts around the blocks, and start the last norm of each branch at zero. A norm followed by "
            "ReLU without a skip multiplies the gradient by 1.21 per layer however well the activations are "
            "normalised."
        )
    return (
        "Scale the weights down to the critical size: He initialisation for ReLU, Xavier or orthogonal for tanh; or "
        "add skips with normalised branches."
    )


DOC = RuleDoc(
    measures="""
The excess of D = log10(‖g₀‖ / ‖g_L‖) over what the stream's own growth must cause, in decades. In a Pre-LN network
each branch normalises its input, so its Jacobian is proportional to 1/‖x‖ and the gradient grows by ‖out‖/‖skip‖ at
every addition: D_pred = 0.5·log10(v_L/v_0), with v the variance of the residual stream. A token that starts at next to
nothing (padding, a class token of zeros) grows by more than the others: its row of g₀ is weighted by its size.
gradscope measures both sides and judges the difference.""",
    why="""
When every block multiplies the gradient, the first layers receive updates far too large for them while the last ones
hardly move; clipping then scales the whole network by what its first layer does. In half precision the lower layers
overflow.""",
    false_positives="""
Pre-LN, Peri-LN and ResNets have larger gradients in early layers by design (a factor of 3 to 10 for 10 to 100 blocks);
that part is subtracted. So is all growth of a stream whose size the loss forgets, because a norm follows its end: a
factor of 10,000 in front of a last LayerNorm makes every gradient below it 10,000 times as large as those behind it,
and the network trains as it would without. Under Adam, growth that the first steps undo (plain networks with BatchNorm
calm down as soon as they move) only warns, and so does growth at the one place where the stream is handed to a part of
another size, such as a decoder: the loss may reach what lies below it by another way. A warning is no risk where the
loss is all but gone within the watched steps. Residual networks without a norm that start their branches at zero do not
explode at all.""",
    example="""
```python
class Block(nn.Module):                      # the variance of the stream doubles in each block
    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))
```
With He initialisation 60 such blocks multiply the gradient by about 1e13. BatchNorm without skips explodes too: a
factor of 1.21 per BatchNorm-ReLU layer, 1e5 after 60 layers, with perfectly normalised activations.""",
    advice="""
1. Residual without a norm: put a norm in front of each branch, or scale the branches by 1/sqrt(number of branches),
   or start them at zero (ReZero, SkipInit, Fixup).
2. Norms but no skips: add shortcuts, zero-initialise the last norm of each branch.
3. Norm on the branch output only: add QK-norm.
4. Neither: initialise at the critical scale.""",
    references=(
        "Yang et al. 2019, A Mean Field Theory of Batch Normalization (arXiv:1902.08129)",
        "Zhang et al. 2019, Fixup Initialization (arXiv:1901.09321)",
        "De & Smith 2020, Batch Normalization Biases Residual Blocks Towards the Identity Function (arXiv:2002.10444)",
        "Hayou et al. 2021, Stable ResNet (arXiv:2010.12859)",
        "Xiong et al. 2020, On Layer Normalization in the Transformer Architecture (arXiv:2002.04745)",
    ),
)

RULE = Rule(
    code="GS102",
    name="exploding-with-depth",
    severity="error",
    summary="The gradient grows on its way to the first block, beyond what a growing stream explains.",
    thresholds=(levels.FAIL_GROWTH, levels.WARN_DECADES, levels.FAIL_GROWTH_SGD, levels.WARN_GROWTH_SGD),
    check=check,
    doc=DOC,
)
