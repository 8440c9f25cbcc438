"""GS107: the gradient vanishes or explodes between the calls of one module, as in a recurrent network."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.facts import Facts
from gradscope.metrics.time import TimeProfile
from gradscope.rules import levels
from gradscope.rules.culprit import finding_at
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Levels, Rule, RuleDoc
from gradscope.rules.numbers import count, factor, signed


def check(facts: Facts, thresholds: Levels) -> Sequence[Finding]:
    """Judge the repeatedly called module with the largest change; its own parts and parents show the same one."""
    judged = [(time, _severity(time, thresholds)) for time in facts.time_profiles if _is_time(facts, time)]
    bad = [(time, severity) for time, severity in judged if severity is not None]
    if not bad:
        return []
    time, severity = max(bad, key=lambda pair: (pair[1] == "error", _carries(facts, pair[0]), _size(pair[0])))
    return [_finding(facts, time, severity, thresholds)]


def _carries(facts: Facts, time: TimeProfile) -> bool:
    """Whether the state passes through the module or a part of it: what only reads the input fades with it."""
    return any(name == time.module or name.startswith(time.module + ".") for name in facts.passes)


def _is_time(facts: Facts, time: TimeProfile) -> bool:
    """Whether calls follow one another in time.

    A block that the residual stream passes again and again, with all that is inside it, is depth; and a shared
    activation or dropout without weights is neither.
    """
    if not any(p.module == time.module or p.module.startswith(time.module + ".") for p in facts.parameters):
        return False
    shared = [module for module, passes in facts.passes.items() if 2 * passes > len(facts.calls_of.get(module, ())) > 1]
    in_depth = any(time.module == module or time.module.startswith(module + ".") for module in shared)
    return facts.runs_through_time or not in_depth


def _severity(time: TimeProfile, thresholds: Levels) -> Severity | None:
    decades = time.decades
    if decades is None:
        reached = time.decades_reached
        faded = time.num_unreached and reached is not None and reached <= -thresholds["warn_decades"]
        return "error" if faded else None
    if decades <= -thresholds["decades"] or decades >= thresholds["exploding_decades"]:
        return "error"
    return "warning" if decades <= -thresholds["warn_decades"] else None


def _may_recover(facts: Facts, time: TimeProfile, thresholds: Levels) -> bool:
    """Whether Adam may still train it: the recurrent weights grow until the gradient comes back further."""
    return facts.rescales_gradients and time.decades is not None and -thresholds["fatal_decades"] < time.decades < 0


def _size(time: TimeProfile) -> float:
    return abs(time.decades) if time.decades is not None else float("inf")


def _finding(facts: Facts, time: TimeProfile, severity: Severity, thresholds: Levels) -> Finding:
    calls = len(time.grad_norm)
    decades = time.decades
    grows = decades is not None and decades > 0
    if decades is None:
        change = f"is exactly zero at the first {count(time.num_unreached, 'step')}"
    else:
        per_call = signed(time.decades_per_call or 0.0)
        change = (
            f"{'grows' if grows else 'shrinks'} {factor(decades)} times ({signed(decades)} decades, {per_call} "
            "per step)"
        )
    shrinking = thresholds["decades" if severity == "error" else "warn_decades"]
    limit = thresholds["exploding_decades"] if grows else -shrinking
    return finding_at(
        facts,
        "GS107",
        severity,
        time.module,
        f"Through time the gradient {change} from call {calls - 1} of `{time.module}` back to call 0.",
        {
            "decades": decades,
            "threshold_decades": limit,
            "decades_per_call": time.decades_per_call,
            "calls": calls,
            "unreached_calls": time.num_unreached,
            "may_recover": _may_recover(facts, time, thresholds),
        },
        _advice(grows),
    )


def _advice(grows: bool) -> str:
    if grows:
        return (
            "Start the recurrent weights orthogonal with gain 1 or less, clip the gradient, or use a gated cell "
            "(LSTM, GRU)."
        )
    return (
        "Start the recurrent weights orthogonal with gain 1; use a gated cell with its forget bias at 1 or more; or "
        "give early steps a shorter way to the loss (a loss per step, attention, skips over time)."
    )


DOC = RuleDoc(
    measures="""
For a module that is called five times or more in one forward: log10 of the gradient norm at the output of its first
call over that of its last call, in decades. Modules that the residual stream passes through again and again (a shared
block, as in ALBERT) are depth, not time, and are judged by GS101 and GS102.""",
    why="""
A recurrent cell uses one weight at every time step. Its gradient is the sum over all steps and looks healthy because
the last steps dominate it, while the first ones contribute nothing: the network cannot learn anything that needs its
early input.""",
    false_positives="""
If the task needs only the last few inputs, a short memory is no fault. A module that is called many times side by
side (one head for many crops) shows similar gradients everywhere and is not reported. `nn.LSTM` and `nn.GRU` run
their steps inside one call; what happens there cannot be seen.""",
    example="""
```python
cell = nn.RNNCell(3, 32)
nn.init.orthogonal_(cell.weight_hh)
cell.weight_hh.data.mul_(0.5)      # 0.5 ** 60 = 1e-18 after 60 steps
```""",
    advice="""
1. Orthogonal recurrent weights with gain 1.
2. LSTM or GRU with a forget bias of 1 or more.
3. A loss at every step, attention over the states, or skips over time.
4. If it explodes: clip, or lower the gain.""",
    references=(
        "Bengio et al. 1994, Learning Long-Term Dependencies with Gradient Descent is Difficult",
        "Pascanu et al. 2013, On the difficulty of training recurrent neural networks (arXiv:1211.5063)",
        "Hochreiter & Schmidhuber 1997, Long Short-Term Memory",
    ),
)

RULE = Rule(
    code="GS107",
    name="through-time",
    severity="error",
    summary="The gradient vanishes or explodes between the first and the last call of one module.",
    thresholds=(
        levels.FAIL_TIME_DECADES,
        levels.FATAL_TIME_DECADES,
        levels.WARN_TIME_DECADES,
        levels.FAIL_TIME_EXPLOSION,
    ),
    check=check,
    doc=DOC,
)
