"""GS101: the gradient shrinks on its way from the last block to the first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradscope.metrics.along import along_depth
from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import Place, depth_culprit, station_label, station_module
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.lasting import lasting_loss
from gradscope.rules.numbers import count, factor, signed
from gradscope.rules.vanishing_causes import advice
from gradscope.rules.with_depth import FEWEST_BLOCKS, levels_in_force, lost_decades, slope_evidence, when

DEEPENING_DECADES = 1.0
"""Decades (log10) by which the steps must have added to a loss to call it growing: a tenth of what arrived at first."""

RECOVERS = " An optimizer that rescales every tensor may still train it: about half of such networks did."
"""What is added where the level of an error is reached, but not that from which next to no network trains."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Compare D at the first and the last watched step with the optimizer's levels; the worse one counts."""
    if facts.runs_through_time:
        return []
    fail, warn = levels_in_force(facts, thresholds)
    fatal = thresholds["fatal_decades"] if facts.rescales_gradients else fail
    if _collapsed(facts):
        fail = warn = fatal = min(warn, thresholds["collapsed_decades"])
    losses = [(one, lost) for one in facts.judged_profiles if (lost := lost_decades(facts, one)) is not None]
    for limit in (fail, warn):
        for profile, lost in losses:
            if lost <= -limit:
                gone = _collapsed(facts) or profile.decades is None
                lasts = math.inf if gone else lasting_loss(facts, [-lost for _, lost in losses], fatal)
                return [_finding(facts, profile, lost, (fatal, fail, warn), lasts)]
    return []


def _collapsed(facts: Facts) -> bool:
    """Whether the tokens have become alike: among such Transformers the lower level already separates."""
    cosine = facts.last_cosine("token_cosine")
    return cosine is not None and cosine >= levels.FAIL_TOKEN_COSINE.value


def _finding(
    facts: Facts, profile: DepthProfile, lost: float, limits: tuple[float, float, float], lasts: float
) -> Finding:
    fatal, fail, warn = limits
    place = depth_culprit(profile, lost)
    severe = lasts >= fail and profile.num_blocks >= FEWEST_BLOCKS
    first, last = station_label(profile.stations[0]), station_label(profile.stations[profile.ends[-1]])
    module = station_module(place.station)
    file, line = facts.place(module)
    return Finding(
        code="GS101",
        severity="error" if severe else "warning",
        module=module,
        call=place.station.call,
        message=(
            f"The gradient shrinks {factor(lost)} times ({signed(lost)} decades) on its way from `{last}` back to "
            f"`{first}`{_share(place, profile)}{when(profile)}."
            + (RECOVERS if lost <= -fail and lasts < fatal else "")
        ),
        evidence={
            "decades": lost,
            "threshold_decades": -(fail if severe else warn),
            **slope_evidence(profile),
            "step": profile.step,
            "reaches_zero": profile.decades is None,
            "may_recover": severe and lasts < fatal,
            "at_one_place": not severe and _at_one_place(facts, warn) and not _deepens(facts),
        },
        advice=advice(facts, profile, place, lost),
        file=file,
        line=line,
    )


def _at_one_place(facts: Facts, warn: float) -> bool:
    """Whether what is lost along the depth stays below the level of a warning: the rest is one block's alone."""
    return all((along_depth(facts, profile) or 0.0) > -warn for profile in facts.judged_profiles)


def _deepens(facts: Facts) -> bool:
    """Whether the steps have made the loss worse by a decade: then what it will come to is open."""
    whole = [decades for profile in facts.judged_profiles if (decades := profile.decades) is not None]
    return len(whole) > 1 and whole[-1] <= whole[0] - DEEPENING_DECADES


def _share(place: Place, profile: DepthProfile) -> str:
    if place.alone and place.jump_decades is not None:
        return f", {abs(place.jump_decades):.1f} of these decades in `{station_module(place.station)}` alone"
    slope = profile.decades_per_block
    if slope is None or not math.isfinite(slope.mean):
        return ""
    return f", {signed(slope.mean)} decades per block over {count(profile.num_blocks, 'block')}"


DOC = RuleDoc(
    measures="""
D = log10(‖g₀‖ / ‖g_L‖), in decades: g₀ is the gradient of the loss at the start of the stream (after the embedding or
stem), g_L at the output of the last block; norms are L2 over the whole batch. −3 means that the first block receives
a thousandth of the last one's gradient. It is measured at step 0 and again after some steps. Because it is a ratio,
the scale of the loss, its reduction, the batch size and the number of tokens cancel. The report adds the mean change
per block with a 95 % interval over the blocks.""",
    why="""
A layer learns in proportion to the gradient it gets. When every block passes on a little less, the product over depth
is what counts: 0.9 per layer is 4e-5 after 96 layers. The first layers then stay as they were initialised, and
everything above learns from noise. The total decides, not the slope: a small loss per block over many blocks kills, a
steep one over four blocks does not. What one block loses alone is another matter: both sides of it train, and an
optimizer that rescales makes up for what those below it lack.""",
    false_positives="""
Adam rescales every tensor, so it tolerates more than SGD: the level follows the optimizer, and between 3.5 and 6.2
decades the verdict under Adam is a risk and not an end. Beyond them it counts only what is lost relative to the
activations as well (‖g‖·‖h‖): a gradient that is small because the activations are is made up for. What the first
steps undo only warns, and so does what is lost at one place (pictures that enter a text model, a layer with a tiny
scale) below 6.2 decades; under SGD such a loss counts as far as the last watched step still shows it. Where all that
reads the end of the stream divides by its size, as a last norm does, a gradient that shrinks with the stream is
explained. A network that is only fine-tuned at its top does not need gradient below. A gradient that is *exactly* zero
is not this rule's: see GS105 (dead), GS106 (cut) and GS109 (zero by design).""",
    example="""
```python
# 16 layers, default init: each passes on about a seventh of the gradient, a ten-trillionth is left.
nn.Sequential(*[m for _ in range(16) for m in (nn.Linear(64, 64), nn.Sigmoid())], nn.Linear(64, 10))
```
The activation alone proves nothing: the same sigmoids with N(0, 1) weights at width 128 neither vanish nor fail.""",
    advice="""
1. Add skips: x + f(norm(x)).
2. Without skips, initialise at the critical scale: He for ReLU, orthogonal for tanh.
3. Replace sigmoids inside the stack.
4. In a Post-LN stack: DeepNorm with both constants, Admin, B2T, or move the norm into the branch.
5. Where the blocks have unscaled skips: the layers between them (stems, downsampling, projections) that no skip goes
   around, if the activations fade there as well; initialise these at the scale of their inputs, and the gains of norms
   at one.""",
    references=(
        "Glorot & Bengio 2010, Understanding the difficulty of training deep feedforward neural networks",
        "He et al. 2015, Delving Deep into Rectifiers (arXiv:1502.01852)",
        "Saxe et al. 2013, Exact solutions to the nonlinear dynamics of learning in deep linear neural networks "
        "(arXiv:1312.6120)",
        "Schoenholz et al. 2017, Deep Information Propagation (arXiv:1611.01232)",
    ),
)

RULE = Rule(
    code="GS101",
    name="vanishing-with-depth",
    severity="error",
    summary="The gradient shrinks on its way to the first block.",
    thresholds=(
        levels.FAIL_DECADES,
        levels.FATAL_DECADES,
        levels.WARN_DECADES,
        levels.FAIL_DECADES_SGD,
        levels.WARN_DECADES_SGD,
        levels.FAIL_DECADES_COLLAPSED,
    ),
    check=check,
    doc=DOC,
)
