"""GS301: tokens (or samples) become so alike that nothing can tell them apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at, surroundings
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc

FEWEST_NUMBERS = 8
"""Numbers per sample (count) below which samples are alike by necessity: two single numbers have a cosine of 1
or -1."""

ALMOST_EQUAL = 0.999
"""Mean cosine between tokens from which they count as collapsed where kappa_J is unknown: of the networks that failed
with collapsed tokens, all but those that had just begun to collapse were beyond it."""


DROWNED = 0.9999
"""Mean cosine between tokens, at the first and the last watched step, from which even an offset does harm: what tells
tokens apart is then a hundredth of the activation and less, and of 60 Transformers beyond it none trained."""


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge the token cosine near the loss at the first and the last step; samples only where there are no tokens."""
    if _may_fail(facts, thresholds) and (alike := _alike(facts, thresholds, "")):
        return [_tokens(facts, "error", *alike)]
    if alike := _alike(facts, thresholds, "warn_"):
        return [_tokens(facts, "warning", *alike)]
    samples = facts.last_cosine("sample_cosine")
    unknown = facts.last_cosine("token_cosine") is None
    if unknown and samples is not None and samples >= thresholds["sample_cosine"] and _is_wide(facts):
        return [_samples(facts, samples, thresholds["sample_cosine"])]
    return []


def collapsed(facts: Facts) -> bool:
    """Whether the tokens have become so alike, at a cost of directions, that it is an error."""
    return _may_fail(facts, RULE.defaults) and _alike(facts, RULE.defaults, "") is not None


def _alike(facts: Facts, thresholds: Levels, prefix: str) -> tuple[float, float, bool] | None:
    """Return the first cosine beyond its level, that level, and whether it is the one after some steps."""
    for name, later in (("token_cosine", False), ("later_token_cosine", True)):
        value, limit = facts.last_cosine("token_cosine", later=later), thresholds[prefix + name]
        if value is not None and value >= limit:
            return value, limit, later
    return None


def _may_fail(facts: Facts, thresholds: Levels) -> bool:
    """Whether tokens were alike from the start: a first step can push all of them one way, and that does not last."""
    return (facts.last_cosine("token_cosine") or 0.0) >= thresholds["warn_token_cosine"] and _narrows(facts)


def _narrows(facts: Facts) -> bool:
    """Whether likeness has cost the gradient its directions: a common offset makes tokens alike and harms nothing.

    Where the Jacobian was not measured, the likeness must be so close that no offset alone explains it. An offset in
    which the tokens drown does harm; inputs that were made up say nothing of that.
    """
    if _drowned(facts):
        return True
    kappas = facts.observed("jacobian_anisotropy").values()
    return max(kappas) >= levels.WARN_ANISOTROPY.value if kappas else max(facts.token_cosines) >= ALMOST_EQUAL


def _drowned(facts: Facts) -> bool:
    """Whether what tells the tokens apart has drowned in an offset, whatever directions the Jacobian keeps."""
    cosines = facts.token_cosines
    return len(cosines) > 1 and min(cosines) >= DROWNED and not facts.provenance.inputs_synthetic


def _is_wide(facts: Facts) -> bool:
    """Whether the samples at the last station where their cosine was taken have more than a few numbers each."""
    shapes = dict(zip(facts.call_modules, facts.recording.tables["calls"]["shape"], strict=True))
    shape = shapes.get(list(facts.observed("sample_cosine"))[-1][0]) or ()
    return bool(math.prod(shape[1:]) >= FEWEST_NUMBERS)


def _tokens(facts: Facts, severity: Severity, value: float, limit: float, later: bool) -> Finding:
    module, call = _first_above(facts, "token_cosine", limit, later=later)
    when = "after some steps" if later else "at initialisation"
    around = surroundings(facts)
    return finding_at(
        facts,
        "GS301",
        severity,
        module,
        f"The tokens of a sequence are nearly the same vector at the end of the stream {when} (mean cosine "
        f"{value:.3f}); from `{module}` on it is above {limit:g}.",
        {"token_cosine": value, "threshold_token_cosine": limit, "later": later},
        (
            "Look at what enters the stream there: an embedding or input that is scaled down is swamped by the first "
            "branch and its biases. Give it a size of order one."
            if around.has_skips and _from_the_start(facts, module) and _drowned(facts)
            else "Depth-scaled branches (DeepNorm, 1/sqrt(L)) or Pre-LN, and a stronger positional signal."
            if around.has_skips
            else "Add skips around attention: x + attention(norm(x)). No learning rate or initialisation repairs this."
        ),
        call,
    )


def _from_the_start(facts: Facts, module: str) -> bool:
    """Whether a module is that of the first block: tokens that depth has made alike differ there."""
    return bool(facts.stations) and module in {station.module for station in facts.stations[:2]}


def _samples(facts: Facts, value: float, limit: float) -> Finding:
    module, call = _first_above(facts, "sample_cosine", limit, later=False)
    return finding_at(
        facts,
        "GS301",
        "warning",
        module,
        f"All samples of the batch give nearly the same activation at the end of the stream (mean cosine "
        f"{value:.5f}).",
        {"sample_cosine": value, "threshold_sample_cosine": limit},
        "Check that the inputs differ, and that biases or saturated units do not swamp them; He or orthogonal "
        "weights keep samples apart.",
        call,
    )


def _first_above(facts: Facts, metric: str, limit: float, *, later: bool) -> tuple[str, int]:
    """Return the first station from which on the cosine stays above the limit."""
    values = facts.observed_later(metric) if later else facts.observed(metric)
    order = [(s.module, s.call) for s in facts.returned if (s.module, s.call) in values] or list(values)
    place = order[-1]
    for candidate in reversed(order):
        if values[candidate] < limit:
            break
        place = candidate
    return place


DOC = RuleDoc(
    measures="""
The mean cosine between the tokens of a sequence (off the diagonal), at the stations of the residual stream, at the
first and the last watched step. For networks without tokens, the mean cosine between samples of the batch.""",
    why="""
Attention averages. Without a strong enough skip, tokens become the same vector after a few layers (rank collapse),
the gradient of queries and keys dies, and the loss stays at that of guessing by frequency. Gradient norms show none
of it: a ten-layer Transformer without skips has perfectly ordinary norms at step 0 and a token cosine of 1.000.""",
    false_positives="""
Tokens of a constant or heavily padded input *are* alike. A common offset (large biases, small embeddings) raises the
cosine without harm, so an error needs a second sign: κ_J of 40 or more (GS108), the gradient having lost directions.
Tokens that only become alike in the first steps are a warning: they often part again. The sample cosine is a weak
predictor and only warns at near-identity.""",
    example="""
```python
def forward(self, x):
    return self.attention(self.norm(x))       # x + was forgotten
```""",
    advice="""
1. Skips around attention and feed-forward.
2. With skips: DeepNorm or branches scaled by 1/sqrt(L), or Pre-LN.
3. A larger positional signal.""",
    references=(
        "Dong et al. 2021, Attention is Not All You Need: Pure Attention Loses Rank Doubly Exponentially "
        "(arXiv:2103.03404)",
        "Noci et al. 2022, Signal Propagation in Transformers and the Role of Rank Collapse (arXiv:2206.03126)",
    ),
)

RULE = Rule(
    code="GS301",
    name="collapse",
    severity="error",
    summary="Tokens or samples become so alike that nothing can tell them apart.",
    thresholds=(
        levels.FAIL_TOKEN_COSINE,
        levels.FAIL_LATER_TOKEN_COSINE,
        levels.WARN_TOKEN_COSINE,
        levels.WARN_LATER_TOKEN_COSINE,
        levels.SAMPLE_COSINE,
    ),
    check=check,
    doc=DOC,
)
