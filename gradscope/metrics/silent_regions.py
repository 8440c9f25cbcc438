"""Where the gradient stops: neighbouring calls through which nothing comes back, and the parameters that lie there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter

UNDERFLOW_RMS = {"float16": 1e-6, "float32": 1e-30, "bfloat16": 1e-30}
"""Root mean square of a gradient (absolute) below which an exact zero next to it is rounding: the smallest subnormals
are 6e-8 (float16), 1e-45 (float32) and 9e-41 (bfloat16), and a tensor's elements spread over several decades."""


@dataclass(frozen=True)
class Region:
    """Neighbouring calls whose output gradients are exactly zero at every watched step, with their dead parameters.

    Attributes:
        culprit: The last module of the region before the loss: nothing comes back through what follows it.
        call: Its call.
        parameters: Dead parameters, in order.
        next_module: The first call after the region that does get a gradient, None where none does.
        next_is_off: Whether that call's output is exactly zero for the whole batch, at every watched step.
        next_starts_at_zero: Whether that is because its own weight is exactly zero.
        underflowed: Whether the gradient is so small just above that the zeros are rounding.
        only_input: Whether its parameters are dead because they multiply an all-zero input, and nothing else.
        zero_factors: Whether the module has several weights that are all exactly zero, each closing the other.
        frozen_scale: Whether the module behind it is off because its scale is zero and cannot be trained.
        bypassed: Whether what runs before the region gets a gradient all the same, past the region.
    """

    culprit: str
    call: int
    parameters: tuple[Parameter, ...]
    next_module: str | None
    next_is_off: bool
    next_starts_at_zero: bool
    underflowed: bool
    only_input: bool = False
    zero_factors: bool = False
    frozen_scale: bool = False
    bypassed: bool = False


def regions(facts: Facts, silent: Sequence[Parameter]) -> tuple[Region, ...]:
    """Group silent parameters by where the gradient stops, in forward order.

    A zero bias beside a weight that learns is left out: what follows may not depend on a shift (a norm, a softmax).
    """
    mute = [p for p in silent if p.is_matrix or not _sibling_learns(facts, p, {q.row for q in silent})]
    runs = _zero_runs(facts)
    taken: dict[int, list[Parameter]] = {}
    loose: dict[str, list[Parameter]] = {}
    for parameter in mute:
        run = _run_of(facts, parameter.module, runs)
        group = loose.setdefault(parameter.module, []) if run is None else taken.setdefault(run, [])
        group.append(parameter)
    found = [(runs[number][0], _region(facts, runs[number], dead)) for number, dead in taken.items()]
    for module, parameters in loose.items():
        rows = facts.calls_of.get(module)
        before = [runs[number][-1] for number in taken if rows and runs[number][-1] < rows[0]]
        if before and not _learns_between(facts, max(before), rows[0] if rows else 0):
            continue
        found.append((rows[0] if rows else len(facts.call_modules), _loose_region(facts, module, parameters)))
    unique = {region.culprit: (row, region) for row, region in reversed(found)}
    return tuple(region for _, region in sorted(unique.values(), key=lambda pair: pair[0]))


def _zero_runs(facts: Facts) -> list[list[int]]:
    """Return runs of calls with exactly zero output gradient at every step; calls without a gradient do not end one."""
    runs: list[list[int]] = []
    current: list[int] = []
    for row in range(len(facts.call_modules)):
        norms = [facts.call_gradients.get(step, {}).get(row) for step in facts.steps]
        known = [norm for norm in norms if norm is not None]
        if known and all(norm == 0.0 for norm in known):
            current.append(row)
        elif known and current:
            runs.append(current)
            current = []
    return [*runs, current] if current else runs


def _run_of(facts: Facts, module: str, runs: Sequence[Sequence[int]]) -> int | None:
    rows = facts.calls_of.get(module, [])
    return next((number for number, run in enumerate(runs) if rows and set(rows) <= set(run)), None)


def _region(facts: Facts, run: Sequence[int], dead: Sequence[Parameter]) -> Region:
    owners = {parameter.module for parameter in dead}
    starved = _is_starved(facts, run, dead)
    end = min if starved else max
    culprit = end((row for row in run if facts.call_modules[row] in owners), default=run[-1])
    following = _next_alive(facts, run[-1])
    return Region(
        culprit=facts.call_modules[culprit],
        call=facts.calls_of[facts.call_modules[culprit]].index(culprit),
        parameters=tuple(dead),
        next_module=None if following is None else facts.call_modules[following],
        next_is_off=following is not None and _stays_off(facts, following),
        next_starts_at_zero=following is not None and _starts_at_zero(facts, facts.call_modules[following]),
        underflowed=_underflowed(facts, culprit, following),
        only_input=starved,
        frozen_scale=following is not None and _has_frozen_zero(facts, facts.call_modules[following]),
        bypassed=any(facts.call_gradients[facts.steps[0]].get(row) for row in range(run[0])),
    )


def _is_starved(facts: Facts, run: Sequence[int], dead: Sequence[Parameter]) -> bool:
    """Whether zeros come in at the start of a region: all its calls give zeros although its weights are not zero."""
    weights = facts.weight_norms.get(facts.steps[0], {})
    solid = [bool(weights.get(p.row)) for p in dead if p.is_matrix]
    return bool(solid) and all(solid) and all(_stays_off(facts, row) for row in run)


def _loose_region(facts: Facts, module: str, parameters: Sequence[Parameter]) -> Region:
    weights = facts.weight_norms.get(facts.steps[0], {})
    factors = [p for p in parameters if p.is_matrix and weights.get(p.row) == 0.0]
    locked = len(factors) > 1
    only_input = not locked and bool(facts.calls_of.get(module))
    return Region(module, 0, tuple(parameters), None, False, False, False, only_input, zero_factors=locked)


def _sibling_learns(facts: Facts, parameter: Parameter, silent: set[int]) -> bool:
    return any(
        other.module == parameter.module and other.is_matrix and other.row not in silent for other in facts.trainable
    )


def _learns_between(facts: Facts, start: int, end: int) -> bool:
    """Whether a module with its own parameters lies between two calls."""
    owners = {parameter.module for parameter in facts.trainable}
    return any(facts.call_modules[row] in owners for row in range(start + 1, end))


def _next_alive(facts: Facts, row: int) -> int | None:
    norms = facts.call_gradients.get(facts.steps[0], {})
    return next((r for r in range(row + 1, len(facts.call_modules)) if norms.get(r)), None)


def _stays_off(facts: Facts, row: int) -> bool:
    """Whether a call's output is exactly zero at every step at which it was seen: a closed door that does not open."""
    norms = [facts.call_forwards.get(step, {}).get(row) for step in facts.steps]
    known = [norm for norm in norms if norm is not None]
    return bool(known) and all(norm == 0.0 for norm in known)


def _starts_at_zero(facts: Facts, module: str) -> bool:
    norms = facts.weight_norms.get(facts.steps[0], {})
    own = [norms.get(p.row) for p in facts.parameters if p.module == module and p.is_matrix]
    return bool(own) and all(norm == 0.0 for norm in own)


def _has_frozen_zero(facts: Facts, module: str) -> bool:
    """Whether a module that is off has nothing to train: a norm (its scale is a buffer), or weights frozen at zero."""
    own = [p for p in facts.parameters if p.module == module]
    norms = facts.weight_norms.get(facts.steps[0], {})
    if any(p.requires_grad for p in own):
        return False
    return getattr(facts.modules.get(module), "role", "") == "norm" or any(norms.get(p.row) == 0.0 for p in own)


def _underflowed(facts: Facts, culprit: int, following: int | None) -> bool:
    dtype = str(facts.recording.tables["calls"]["dtype"][culprit] or "float32").removeprefix("torch.")
    if following is None:
        return dtype == "float16"
    norm = facts.call_gradients[facts.steps[0]][following]
    count = _elements_at_first_step(facts).get(following) or 1
    return bool(norm / count**0.5 < UNDERFLOW_RMS.get(dtype, 0.0))


def _elements_at_first_step(facts: Facts) -> dict[int, int | None]:
    """Return the number of output elements per row of the call table, at the first watched step."""
    table = facts.recording.tables["call_stats"]
    first = facts.steps[0]
    rows = zip(table["step"], table["call"], table["num_elements"], strict=True)
    return {call: count for step, call, count in rows if step == first}
