"""A closer look at a step that went wrong: run again, where were gradients cut or numbers lost?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gradscope.probe.faults.births import find_births
from gradscope.probe.faults.cuts import Cut, find_cuts
from gradscope.probe.restore import Moment
from gradscope.probe.watching.tables import Tables

_MOST_NAMES = 5
"""Parameters that an event names one by one."""


def note_births(
    tables: Tables, step: int, model: nn.Module, forward: Callable[[], torch.Tensor], batch: Any, moment: Moment
) -> None:
    """Write an event for each place at which the step becomes non-finite."""
    try:
        with moment.again():
            births = find_births(model, forward, batch)
    except Exception as error:  # user code under a mode it may not be made for can raise anything
        tables.confess("where numbers become non-finite", f"running the step again raised {type(error).__name__}")
        return
    for birth in births:
        tables.add(
            "events", step=step, kind=birth.kind, module=birth.module, call=birth.call, op=birth.op,
            file=tables.file(birth.file), line=birth.line, detail=birth.detail,
        )  # fmt: skip
    if not births:
        tables.confess("where numbers become non-finite", "the same step, run again, did not")


def note_cuts(
    tables: Tables, step: int, model: nn.Module, forward: Callable[[], Any], starved: list[str], moment: Moment
) -> list[Cut]:
    """Write an event for each place at which gradients are cut off from parameters that got none."""
    try:
        with moment.again():
            cuts = find_cuts(model, forward, starved)
    except Exception as error:
        tables.confess("where gradients are cut", f"running the forward again raised {type(error).__name__}")
        return []
    for cut in cuts:
        names = ", ".join(cut.parameters[:_MOST_NAMES]) + (", …" if len(cut.parameters) > _MOST_NAMES else "")
        tables.add(
            "events", step=step, kind="cut", module=cut.module, call=cut.call, op=cut.op, file=tables.file(cut.file),
            line=cut.line, detail=f"no gradient for {len(cut.parameters)} parameters: {names}",
        )  # fmt: skip
    return cuts
