"""GS110: weights that start all but zero."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.faint import faint, layers
from gradscope.metrics.weights import share_of
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.levels import FAINT_SHARE, WARN_FAINT_SHARE
from gradscope.rules.numbers import count


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report faint weights; an error where the watched steps have not lifted most of them."""
    if not facts.steps:
        return []
    first, last = facts.steps[0], facts.steps[-1]
    start = faint(facts, first)
    still = [p for p in faint(facts, last) if p in start]
    if share_of(start, layers(facts)) < thresholds["warn_share"]:
        return []
    left_share = share_of(still, facts.trainable)
    stays = last > first and bool(still)
    module = start[0].module
    file, line = facts.place(module)
    left = f"{len(still):,} of them are still so" if still else "all have grown"
    watched = f"; after {count(last, 'step')} {left}" if last > first else ""
    matrices = "1 weight matrix starts" if len(start) == 1 else f"{len(start):,} weight matrices start"
    norm = facts.weight_norms[first][start[0].row] or 0.0
    size = norm / start[0].num_elements ** 0.5
    return [
        Finding(
            code="GS110",
            severity="error" if stays and left_share >= thresholds["share"] else "warning",
            module=module,
            message=(
                f"{matrices} all but zero (`{start[0].name}`: {size:.0e} in size), so that nothing passes through them "
                f"in either direction{watched}."
            ),
            evidence={
                "weights": len(start),
                "weight_rms": size,
                "share_of_parameters": left_share if last > first else share_of(start, facts.trainable),
                "stays": stays,
                "last_step": last,
            },
            advice=(
                "Load pretrained weights, for which such an initialisation is meant; or initialise at a usual scale "
                "(He, Xavier, or a standard deviation of 0.02)."
            ),
            file=file,
            line=line,
        )
    ]


DOC = RuleDoc(
    measures="""
The gain of every trainable weight matrix, its root mean square times the square root of its inputs, at the first and
the last watched step. Below 1e-6 a layer passes nothing on. Weights of exactly zero are another matter (GS109).""",
    why="""
What comes out of such a layer is lost in the rounding of whatever it is added to, and the gradient that goes back
through two of them is below what float32 and Adam's epsilon can hold. All that other rules see (uniform attention,
exact zeros, starved queries) follows from it.""",
    false_positives="""
Some libraries give models that are only ever loaded a standard deviation of 1e-10 (SAM, BLIP, Pix2Struct): without
pretrained weights the finding is true. Where the first steps lift the weights it only warns. LayerScale and other
gains are vectors and not judged.""",
    example="""
```python
nn.init.normal_(layer.weight, std=1e-10)     # config.initializer_range of a checkpoint that is always loaded
```""",
    advice="""
Load the weights, or initialise at a usual scale.""",
    references=("He et al. 2015, Delving Deep into Rectifiers (arXiv:1502.01852)",),
)

RULE = Rule(
    code="GS110",
    name="faint-weights",
    severity="error",
    summary="Weights that start all but zero, so that nothing passes through them.",
    thresholds=(FAINT_SHARE, WARN_FAINT_SHARE),
    check=check,
    doc=DOC,
)
