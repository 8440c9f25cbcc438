"""A closer look at a step that went wrong: run again, where were gradients cut, numbers lost, or all that came zero?"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import nn

from gradscope.probe.attach import StepWatch
from gradscope.probe.faults.again import Forwards, send_back
from gradscope.probe.faults.births import Birth, find_births
from gradscope.probe.faults.cuts import Cut, find_cuts
from gradscope.probe.faults.zeros import find_zeros
from gradscope.probe.restore import Moment
from gradscope.probe.watching.tables import Tables
from gradscope.probe.watching.updates import Updates
from gradscope.schema import CUTS_UNSEEN, LEFT_OUT

_Found = TypeVar("_Found")

_BIRTHS = "where numbers become non-finite"
_ZEROS = "where gradients become zero"
_SEEDS = "the same numbers from the same seed"
_MOST_NAMES = 5
"""Parameters that an event names one by one."""


def note_births(
    tables: Tables, step: int, model: nn.Module, forward: Callable[[], torch.Tensor], batch: Any, moment: Moment
) -> None:
    """Write an event for each place at which the step becomes non-finite."""
    births = _look(tables, _BIRTHS, moment.again(), lambda: find_births(model, forward, batch))
    if births is not None:
        _write_births(tables, step, births)


def note_births_of_loop(
    tables: Tables, step: int, model: nn.Module, watch: StepWatch, in_loss: list[Birth], updates: Updates | None
) -> None:
    """Write an event for each place at which a step of a loop that is not ours becomes non-finite.

    Its forwards are run again where that can tell more than the watched step itself did.

    Args:
        tables: Where to.
        step: Which step.
        model: The model.
        watch: What watched the step.
        in_loss: The births between the model's output and the backward pass.
        updates: The weights before the step, None where they are not known.
    """
    if in_loss and _model_is_finite(tables, step):
        _write_births(tables, step, in_loss)
        return
    births = _look_in_loop(
        tables, _BIRTHS, model, watch, updates,
        lambda forwards, backward: find_births(model, forwards.run, forwards.given, backward),
    )  # fmt: skip
    if births is not None:
        _write_births(tables, step, births)


def note_seeds(tables: Tables, forward: Callable[[], Any], drawn: int, moment: Moment) -> None:
    """Confess that a run does not repeat where the forward takes another seed when it is run again.

    Args:
        tables: Where to.
        forward: Runs it.
        drawn: The seed that it had left torch's generator with.
        moment: Before the step.
    """

    def seeds() -> list[int]:
        forward()
        return [torch.initial_seed()]

    if _look(tables, _SEEDS, moment.again(), seeds) not in ([drawn], None):
        tables.confess(_SEEDS, "the forward itself seeds torch's generator, with a number from the operating system")


def note_cuts(
    tables: Tables, step: int, model: nn.Module, forward: Callable[[], Any], starved: list[str], moment: Moment
) -> list[Cut]:
    """Write an event for each place at which gradients are cut off from parameters that got none."""
    cuts = _look(tables, CUTS_UNSEEN, moment.again(), lambda: find_cuts(model, forward, starved)) or []
    write_cuts(tables, step, cuts)
    return cuts


def note_zeros(
    tables: Tables, step: int, model: nn.Module, forward: Callable[[], Any], silent: list[str], moment: Moment
) -> None:
    """Write an event for each place at which the gradients of silent parameters become exactly zero."""
    zeros = _look(tables, _ZEROS, moment.again(), lambda: find_zeros(model, forward, silent))
    _write_places(tables, step, "zero", "only zeros for", zeros or [])


def note_zeros_of_loop(
    tables: Tables, step: int, model: nn.Module, watch: StepWatch, silent: list[str], updates: Updates | None
) -> None:
    """Write such events for a step of a loop that is not ours, as far as its forwards can be run again."""
    zeros = _look_in_loop(
        tables, _ZEROS, model, watch, updates,
        lambda forwards, backward: find_zeros(model, forwards.run, silent, backward),
    )  # fmt: skip
    _write_places(tables, step, "zero", "only zeros for", zeros or [])


def write_cuts(tables: Tables, step: int, cuts: list[Cut]) -> None:
    """Write an event for each cut."""
    _write_places(tables, step, "cut", "no gradient for", cuts)


def _look(
    tables: Tables, what: str, moment: AbstractContextManager[None], find: Callable[[], list[_Found]]
) -> list[_Found] | None:
    """Go back to a moment and return what is found there; None, and a confession, where running it again raises."""
    try:
        with moment:
            return find()
    except Exception as error:  # user code under a mode it may not be made for can raise anything
        tables.confess(what, f"running the step again raised {type(error).__name__}")
        return None


def _look_in_loop(
    tables: Tables,
    what: str,
    model: nn.Module,
    watch: StepWatch,
    updates: Updates | None,
    find: Callable[[Forwards, Callable[[list[Any]], None]], list[_Found]],
) -> list[_Found] | None:
    """Do so in a loop that is not ours, where its forwards can be run again; `find` gets them and what goes back."""
    why = _obstacle(watch, updates)
    if why is not None:
        tables.confess(what, why)
        return None
    assert watch.evidence is not None
    assert updates is not None
    forwards, backward = watch.evidence.forwards, send_back(model, _arrivals(watch))
    return _look(tables, what, forwards.moment(updates.before), lambda: find(forwards, backward))


def _obstacle(watch: StepWatch, updates: Updates | None) -> str | None:
    """Return why the forwards of a step cannot be run again, None where they can."""
    if watch.evidence is None:
        return "--level params does not look"
    if updates is None:
        return "the weights were changed by no optimizer that could be seen"
    return watch.evidence.forwards.obstacle()


def _arrivals(watch: StepWatch) -> Callable[[int, int], bool]:
    """Return what tells whether a gradient came to the n-th tensor that the i-th outermost call returned."""
    outputs = [found for call, found in watch.outputs.of_call.items() if call.parent is None]
    return lambda i, n: i < len(outputs) and n < len(outputs[i]) and outputs[i][n].gradient is not None


def _model_is_finite(tables: Tables, step: int) -> bool:
    norms = tables.of_step("call_stats", step, ("forward_norm",))
    return all(norm is None or math.isfinite(norm) for (norm,) in norms)


def _write_births(tables: Tables, step: int, births: list[Birth]) -> None:
    for birth in births:
        tables.add(
            "events", step=step, kind=birth.kind, module=birth.module, call=birth.call, op=birth.op,
            file=tables.file(birth.file), line=birth.line, detail=birth.detail,
        )  # fmt: skip
    if not births:
        tables.confess(_BIRTHS, "the same step, run again, did not")


def _write_places(tables: Tables, step: int, kind: str, what: str, places: list[Cut]) -> None:
    for place in places:
        more = [LEFT_OUT] if len(place.parameters) > _MOST_NAMES else []
        names = ", ".join([*place.parameters[:_MOST_NAMES], *more])
        tables.add(
            "events", step=step, kind=kind, module=place.module, call=place.call, op=place.op,
            file=tables.file(place.file), line=place.line, detail=f"{what} {len(place.parameters)} parameters: {names}",
        )  # fmt: skip
