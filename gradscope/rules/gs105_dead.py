"""GS105: a gradient that is exactly zero and stays so after optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Event, Facts
from gradscope.metrics.faint import beside_faint
from gradscope.metrics.silence import closed_doors, states
from gradscope.metrics.silent_regions import Region, regions
from gradscope.metrics.weights import Parameter, share_of
from gradscope.rules.endings import is_mask, place_of, way_round, written_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count, listed
from gradscope.rules.with_depth import fades_to_zero
from gradscope.schema import BY_CONSTANT

MOST_PLACES = 5
"""Findings (count) printed for separate dead places; the last one says how many more there are."""

SIDE_PART = 0.05
"""Share of the parameters (fraction) up to which a silent part without a visible cause is a warning, not an error."""

HALF = 0.5
"""Share of the parameters (fraction) from which no loss or input explains the silence away."""

EXCUSE = " Nothing was seen that closes the way, so it may be meant, or the loss may not need this part."
MASKED = " What closes the way is no weight, and the inputs were made up: with yours it may be open."
MASKED_BY_YOURS = " What closes the way is no weight but what it is multiplied by, and may be meant."


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Report every separate place where the gradient stops, in forward order; underflow is left to other rules."""
    state = states(facts)
    dead = [p for p in facts.trainable if state[p.row] == "dead" and p.num_elements]
    unsure = [p for p in facts.trainable if state[p.row] == "unsure" and p.num_elements]
    found = [(region, True) for region in _reported(facts, dead)]
    if not found and unsure and not closed_doors(facts):
        found = [(region, False) for region in _reported(facts, unsure)]
    frozen = [region for region, certain in found if certain and _behind_frozen_scale(region)]
    apart = [(region, certain) for region, certain in found if region not in frozen]
    share = _share(facts, [region for region, _ in apart])
    return [
        *([_frozen(facts, frozen)] if frozen else []),
        *(
            _finding(facts, region, certain, share, len(apart) - MOST_PLACES if number == MOST_PLACES - 1 else 0)
            for number, (region, certain) in enumerate(apart[:MOST_PLACES])
        ),
    ]


def _reported(facts: Facts, silent: Sequence[Parameter]) -> list[Region]:
    """Return the regions of silent parameters but those that another rule tells of."""
    return [
        region
        for region in (regions(facts, silent) if silent else ())
        if not region.underflowed and not _only_selects(region) and not beside_faint(facts, region.culprit)
        if not (region.only_input and fades_to_zero(facts))  # its input has faded on the way: GS101
    ]


def _behind_frozen_scale(region: Region) -> bool:
    """Whether a frozen scale of zero closes a branch: the model is made to be loaded with weights, and trains past it.

    Where nothing passes beside it the model is as dead as behind any other zero.
    """
    return region.next_is_off and region.frozen_scale and region.bypassed


def _share(facts: Facts, found: Sequence[Region]) -> float:
    """Return the share of the parameters that are dead in these regions."""
    return share_of({p.row: p for region in found for p in region.parameters}.values(), facts.trainable)


def _frozen(facts: Facts, found: Sequence[Region]) -> Finding:
    """Tell of all such places at once: they have one cause."""
    first = found[0]
    file, line = facts.place(first.culprit)
    scales = listed([region.next_module or "" for region in found])
    return Finding(
        code="GS105",
        severity="warning",
        module=first.culprit,
        call=first.call,
        message=(
            f"No gradient passes back into {listed([region.culprit for region in found])}: the scale of the frozen "
            f"{scales} behind {'it' if len(found) == 1 else 'them'} is zero, and nothing trains it. The rest of the "
            "model learns past it."
        ),
        evidence={
            "zero_parameters": sum(len(region.parameters) for region in found),
            "share_of_parameters": _share(facts, found),
            "last_step": facts.steps[-1],
            "next_module": first.next_module,
            "next_module_is_off": True,
            "frozen_scales": len(found),
        },
        advice=(
            "Load pretrained weights: scale and statistics of a frozen norm come with them. To train from random "
            "weights, use a norm that learns, or set the scale to one."
        ),
        file=file,
        line=line,
    )


def _is_closed(region: Region) -> bool:
    """Whether what closes the way was seen: units that are all off, or factors that are all zero."""
    return region.next_is_off or region.zero_factors


def _may_be_meant(facts: Facts, share: float) -> bool:
    """Whether a zero without a visible cause may be nobody's fault.

    A small side part is often silent by design (the router of a single expert, a choice that is made hard), and a loss
    or an input that gradscope made up need not reach every head.
    """
    origin = facts.provenance
    return share < SIDE_PART or (share < HALF and (origin.loss_synthetic or origin.inputs_synthetic))


def _only_selects(region: Region) -> bool:
    """Whether only queries and keys are silent: attention over a single key, which has nothing to choose (GS305)."""
    return all(p.role in ("query", "key") for p in region.parameters)


def _finding(facts: Facts, region: Region, certain: bool, share: float, further: int) -> Finding:
    ending = place_of(facts, "zero", *(p.name for p in region.parameters))
    file, line = (ending.file, ending.line) if ending and ending.file else facts.place(region.culprit)
    last = facts.steps[-1]
    names = [parameter.name for parameter in region.parameters]
    more = f" {count(further, 'more place')} like it." if further > 0 else ""
    masked = is_mask(ending) and not region.frozen_scale
    excused = (masked or not _is_closed(region)) and _may_be_meant(facts, share)
    severity: Severity = "error" if certain and not region.only_input and not excused else "warning"
    return Finding(
        code="GS105",
        severity=severity,
        module=region.culprit,
        call=region.call,
        message=_message(region, names, certain, last, ending, masked=masked)
        + _excuse(facts, excused=excused, masked=masked)
        + more,
        evidence={
            "zero_parameters": len(names),
            "share_of_parameters": share,
            "last_step": last,
            "next_module": region.next_module,
            "next_module_is_off": region.next_is_off,
            "zero_from_operation": ending.op if ending else None,
            "further_places": max(further, 0),
            "may_be_meant": excused and share < SIDE_PART,
        },
        advice=_advice(region, certain, ending, masked=masked),
        file=file,
        line=line,
    )


def _excuse(facts: Facts, *, excused: bool, masked: bool) -> str:
    if not excused:
        return ""
    if not masked:
        return EXCUSE
    return MASKED if facts.provenance.inputs_synthetic else MASKED_BY_YOURS


def _message(
    region: Region, names: list[str], certain: bool, last: int, ending: Event | None, *, masked: bool
) -> str:
    still = f" and still is at step {last}" if certain else f" (only step {last} was watched)"
    culprit = f"`{region.culprit}`" if region.culprit else "the model itself"
    subject = culprit if region.culprit else "The model itself"
    if region.only_input:
        return f"{subject} receives nothing but zeros: the gradient of {listed(names)} is exactly zero{still}."
    if region.zero_factors:
        return f"{subject} has only zero factors: the gradient of {listed(names)} is exactly zero{still}."
    why = ""
    if region.next_is_off and not masked:
        what = f"`{region.next_module}` behind it" if region.next_module else "the model's own output"
        why = f": {what} gives exactly zero for every sample"
    if ending is not None and not why:
        at = written_at(ending)
        inside = f" of `{ending.module or 'the model'}`" if ending.module or not at else ""
        why = f": it becomes zero in {ending.op or 'an operation'}{inside}{at}"
    return f"No gradient passes back into {culprit}: that of {listed(names)} is exactly zero{still}{why}."


def _advice(region: Region, certain: bool, ending: Event | None, *, masked: bool) -> str:
    if not certain:
        return "Watch a few optimizer steps (--steps 11): zero at step 0 may be by design."
    if region.zero_factors:
        return "Factors that are all exactly zero never move each other: initialise one of them at random."
    if masked and ending is not None:
        return way_round(ending.op or "") or way_round(BY_CONSTANT) or ""
    if region.next_is_off and region.next_starts_at_zero:
        return (
            f"Two factors in a row are exactly zero, here and in `{region.next_module}`: neither can move the other. "
            "Initialise one of them at random."
        )
    if region.next_is_off:
        return (
            "Every unit is off for every sample, so nothing can move it back: check the bias in front of it, lower "
            "the learning rate, or use LeakyReLU or GELU."
        )
    if region.only_input:
        return "Check what feeds it: an input that is always zero, a mask, or a branch that is switched off."
    instead = way_round(ending.op or "") if ending else None
    if instead is not None:
        return instead
    return (
        "Check what follows it: a ReLU that is off for the whole batch, a product with a weight that is exactly zero "
        "(two zero-initialised factors in a row never wake up), a mask, a clamp at its limit, or a loss weight of "
        "zero."
    )


DOC = RuleDoc(
    measures="""
Parameters whose gradient is *exactly* zero at every watched step, the last one after several optimizer steps, while a
gradient did arrive at what follows. The culprit is the last module before the loss into which nothing passes back,
not the whole cone of modules below it. The step is run once more to name the operation, file and line at which the
gradient becomes zero.""",
    why="""
An exact zero does not grow back: if all units of a ReLU layer are off for all samples, or two factors of a product
are both zero, no optimizer moves them. Behind a residual stream the loss still falls, and only that block never
learns.""",
    false_positives="""
Not reported here: zero at step 0 that wakes up (ReZero, zero-initialised last layers, LoRA: GS109), stochastic depth
(zero in one step, alive in another), frozen parameters, biases in front of a norm (mathematically zero, rounding
noise of 1e-9), single dead ReLU units (GS303), gradients that underflow (GS101 and GS401). A loss term multiplied by
0 to keep distributed training happy looks dead because it is. Branches behind a frozen norm whose scale is zero (the
backbone of a DETR without its pretrained weights) are dead for good, and warn: the rest trains past them. So does a
part that is fed with nothing but zeros (the self-conditioning of a first diffusion step), and one behind a mask, where
it is small or the inputs were made up.""",
    example="""
```python
net[2].bias.fill_(-20.0)     # Linear 2 in front of a ReLU: all units off, nothing below ever learns
```
LoRA with both factors zero is dead for good; with the usual one zero factor it wakes up after one step.""",
    advice="""
1. Dead ReLU layer: fix the bias or the scale of what feeds it; lower the learning rate; LeakyReLU or GELU.
2. Two zero-initialised factors in a row: initialise one of them at random.
3. Zero masks, clamps or loss weights: remove them.
4. A step (`round`, `sign`) or a random draw (`torch.normal`, `torch.bernoulli`): its derivative is zero everywhere; use
   a soft version, a straight-through estimator, or the reparameterised draw.""",
    references=(
        "Lu et al. 2019, Dying ReLU and Initialization (arXiv:1903.06733)",
        "Hu et al. 2021, LoRA (arXiv:2106.09685)",
    ),
)

RULE = Rule(
    code="GS105",
    name="dead",
    severity="error",
    summary="A gradient that is exactly zero and stays so after optimizer steps.",
    thresholds=(),
    check=check,
    doc=DOC,
)
