"""GS106: parameters that are meant to learn and are used, but from which no path leads to the loss."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.covering import covering_modules
from gradscope.metrics.facts import Event, Facts
from gradscope.metrics.weights import Parameter, share_of
from gradscope.rules.endings import place_of, way_round, written_at
from gradscope.rules.finding import Finding
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count, listed
from gradscope.schema import CUTS_UNSEEN


def unreached(facts: Facts) -> list[Parameter]:
    """Return trainable parameters that no watched backward reached, as far as that is known."""
    norms = facts.parameter_gradients
    return [
        p
        for p in facts.trainable
        if p.takes_part is False and all(norms.get(step, {}).get(p.row) is None for step in facts.steps)
    ]


def disconnected(facts: Facts) -> list[Parameter]:
    """Return the unreached parameters whose module ran in front of a cut: the loss does depend on them."""
    called = [p for p in unreached(facts) if facts.was_called(p.module)]
    cut = [p for p in unreached(facts) if place_of(facts, "cut", p.name) is not None]
    if cut or not _looked_in_vain(facts):
        return cut
    return called if called and _everything_below_is_cut(facts, called) else []


def check(facts: Facts, _: Levels) -> Sequence[Finding]:
    """Report the highest modules that are cut off, each with the place of the cut where that was seen."""
    if facts.parameters and not facts.trainable:
        return [_nothing_trains()]
    lost = disconnected(facts)
    share = share_of(lost, facts.trainable)
    return [_finding(facts, module, lost, share) for module in covering_modules(facts, [p.name for p in lost])]


def _finding(facts: Facts, module: str, lost: Sequence[Parameter], share: float) -> Finding:
    names = [p.name for p in lost if not module or p.name == module or p.name.startswith(module + ".")]
    cut = place_of(facts, "cut", names[0])
    file, line = (cut.file, cut.line) if cut and cut.file else facts.place(module)
    published = (cut is None or cut.file is None) and facts.place(module) == (None, None)
    where = ""
    if cut is not None:
        at = written_at(cut)
        inside = "" if at else f" in `{cut.module or 'the model'}`"  # one line may be that of many modules
        where = f": the graph is cut by {cut.op or 'an operation'}{inside}{at}"
    return Finding(
        code="GS106",
        severity="warning" if published else "error",
        module=module,
        message=(
            f"`{module or 'the model'}` runs and its {count(len(names), 'parameter')} ({listed(names)}) require a "
            f"gradient, but none can reach them{where}."
            + (" That is the library's own design: such a part is trained apart or not at all." if published else "")
        ),
        evidence={
            "parameters": len(names),
            "share_of_parameters": share,
            "cut_operation": cut.op if cut else None,
            "cut_in": cut.module if cut else None,
        },
        advice=_advice(cut),
        file=file,
        line=line,
    )


def _advice(cut: Event | None) -> str:
    instead = way_round(cut.op or "") if cut else None
    if instead is not None:
        return instead
    if cut is not None:
        return (
            "Remove the cut, or, if it is meant (a target network, features of a frozen encoder), set "
            "requires_grad_(False) on these parameters and keep them out of the optimizer."
        )
    return (
        "Look between this module and what first trains for .detach(), .data, torch.no_grad(), argmax, round, a cast "
        "to int or a trip through NumPy; if it is meant, set requires_grad_(False) on these parameters."
    )


def _nothing_trains() -> Finding:
    return Finding(
        code="GS106",
        severity="error",
        module="",
        message="No parameter of the model requires a gradient: nothing can be trained.",
        evidence={"parameters": 0},
        advice="Call requires_grad_(True) on the parameters that should learn.",
    )


def _looked_in_vain(facts: Facts) -> bool:
    """Whether the search for the cut itself failed, so that the order of calls has to tell."""
    return CUTS_UNSEEN in facts.recording.tables["confessions"]["what"]


def _everything_below_is_cut(facts: Facts, called: Sequence[Parameter]) -> bool:
    """Whether all that ran with parameters before some point is unreached and all after it is reached.

    A head whose output is not in the loss runs after or beside modules that train; an encoder behind a cut runs before
    all of them.
    """
    lost = {p.module for p in called}
    trains = {p.module for p in facts.trainable} - {p.module for p in unreached(facts)}
    first_trained = next((row for row, name in enumerate(facts.call_modules) if name in trains), None)
    last_lost = max((row for row, name in enumerate(facts.call_modules) if name in lost), default=None)
    return first_trained is None or (last_lost is not None and last_lost < first_trained)


DOC = RuleDoc(
    measures="""
Parameters with `requires_grad=True` in modules that ran in the forward pass, from which autograd knows no path to the
loss: after the backward their gradient is None, not zero. Where the cut was seen, its operation, file and line are
given (`.detach()`, `torch.no_grad()`, `argmax`, `round`, a cast to an integer, `.data`).""",
    why="""
The optimizer skips parameters without a gradient in silence. The part above the cut still learns and the loss falls,
so the run looks healthy while the encoder stays random for ever.""",
    false_positives="""
Frozen parameters, experts that received no token and modules that were not called are not reported here (GS603 lists
them for information); neither is a head whose output the loss does not use, nor, in a loop of one's own, what no
optimizer holds. Elsewhere a stop-gradient on purpose (target networks, BYOL) should be said to PyTorch: set
`requires_grad_(False)`.""",
    example="""
```python
z = self.encoder(x)
return self.head(z.detach())      # left over from debugging: the encoder never trains
```""",
    advice="""
1. Remove the detach or no_grad, or replace the operation that has no derivative by a soft or straight-through one.
2. If it is meant, set `requires_grad_(False)`: it saves memory and says so to the reader.""",
    references=(
        "PyTorch documentation, Autograd mechanics: locally disabling gradient computation",
        "Bengio et al. 2013, Estimating or Propagating Gradients Through Stochastic Neurons (arXiv:1308.3432)",
    ),
)

RULE = Rule(
    code="GS106",
    name="disconnected",
    severity="error",
    summary="Parameters that are used and meant to learn, but from which no path leads to the loss.",
    thresholds=(),
    check=check,
    doc=DOC,
)
