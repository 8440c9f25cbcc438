"""GS110: weights that start all but zero, or that nothing has initialised."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.faint import faint, layers, unwritten
from gradscope.metrics.weights import Parameter, rms, share_of
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.levels import FAINT_SHARE, WARN_FAINT_SHARE
from gradscope.rules.numbers import count


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Report faint weights and unwritten ones; an error where the watched steps have not mended most of the model."""
    if not facts.steps:
        return []
    first = facts.steps[0]
    start, raw = faint(facts, first), unwritten(facts, first)
    found = [_finding(facts, raw, unwritten, _unwritten_words(facts, raw), thresholds)] if raw else []
    if start and share_of(start, layers(facts)) >= thresholds["warn_share"]:
        found.append(_finding(facts, start, faint, _faint_words(facts, start), thresholds))
    return found


def _finding(
    facts: Facts,
    start: Sequence[Parameter],
    kind: Callable[[Facts, int], list[Parameter]],
    words: tuple[str, str],
    thresholds: Levels,
) -> Finding:
    message, advice = words
    first, last = facts.steps[0], facts.steps[-1]
    still = [p for p in kind(facts, last) if p in start]
    stays = last > first and bool(still)
    share = share_of(still, facts.trainable) if last > first else share_of(start, facts.trainable)
    idle = all(p.takes_part is False for p in start)
    left = f"{len(still):,} of them are still so" if still else "all have changed"
    watched = f"; after {count(last, 'step')} {left}" if last > first else ""
    severity: Severity = "error" if stays and share >= thresholds["share"] else "warning"
    return finding_at(
        facts,
        "GS110",
        "info" if idle else severity,
        start[0].module,
        f"{message}{watched}." + (" None of them took part in these steps." if idle else ""),
        {
            "weights": len(start),
            "weight_rms": _size(facts, start[0]),
            "share_of_parameters": share,
            "stays": stays,
            "unwritten": kind is unwritten,
            "last_step": last,
        },
        advice,
    )


def _faint_words(facts: Facts, start: Sequence[Parameter]) -> tuple[str, str]:
    return (
        f"{_matrices(start)} all but zero (`{start[0].name}`: {_size(facts, start[0]):.0e} in size), so that nothing "
        "passes through them in either direction",
        "Load pretrained weights, for which such an initialisation is meant; or initialise at a usual scale "
        "(He, Xavier, or a standard deviation of 0.02).",
    )


def _unwritten_words(facts: Facts, raw: Sequence[Parameter]) -> tuple[str, str]:
    return (
        f"{_matrices(raw)} with values that no initialisation draws (`{raw[0].name}`: {_size(facts, raw[0]):.0e} in "
        "size), as memory holds that was never written",
        "Initialise them: a parameter made by torch.empty holds whatever the memory held, and something else in the "
        "next run. Or load pretrained weights.",
    )


def _matrices(some: Sequence[Parameter]) -> str:
    return "1 weight matrix starts" if len(some) == 1 else f"{len(some):,} weight matrices start"


def _size(facts: Facts, parameter: Parameter) -> float:
    return rms(facts.weight_norms[facts.steps[0]][parameter.row], parameter.num_elements) or 0.0


DOC = RuleDoc(
    measures="""
The gain of every trainable weight matrix, its root mean square times the square root of its inputs, at the first and
the last watched step. Below 1e-6 a layer passes nothing on. Weights of exactly zero are another matter (GS109). And
their root mean square: one below 1e-30 or above 1e10 was not drawn by any initialisation, but is what memory held
before (`torch.empty` in a parameter).""",
    why="""
What comes out of such a layer is lost in the rounding of whatever it is added to, and the gradient that goes back
through two of them is below what float32 and Adam's epsilon can hold. All that other rules see (uniform attention,
exact zeros, starved queries) follows from it.""",
    false_positives="""
Some libraries give models that are only ever loaded a standard deviation of 1e-10 (SAM, BLIP, Pix2Struct): without
pretrained weights the finding is true. Where the first steps lift the weights it only warns, and it is a remark where
none of them took part in the steps. LayerScale and other
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
    summary="Weights that start all but zero, so that nothing passes through them, or that nothing initialises.",
    thresholds=(FAINT_SHARE, WARN_FAINT_SHARE),
    check=check,
    doc=DOC,
)
