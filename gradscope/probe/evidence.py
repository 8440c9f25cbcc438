"""What a step of a loop that is not ours leaves behind, in case it goes wrong: it cannot be run again as a whole."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch import nn

from gradscope.probe.faults.again import Forwards
from gradscope.probe.faults.cuts import Cut, CutFinder
from gradscope.probe.faults.loss_part import LossPart
from gradscope.probe.faults.switches import told_of_switches
from gradscope.probe.watching.backward import Backward
from gradscope.probe.watching.calls import CallTracker
from gradscope.probe.watching.modes import Lingering
from gradscope.probe.watching.outputs import Outputs
from gradscope.probe.watching.rows import Handle, Rows

_LOOKED_AT = 4
"""Gradients, of the smallest parameters, that are looked at for what an earlier step has left in them."""


class Evidence:
    """Gather evidence during one step, as a context around it.

    From the first outermost forward to the backward pass the functions outside of the model are looked at (`loss`), and
    on the first watched step the places where gradients are cut (`cuts`). What the forwards were given is kept
    (`forwards`) until the context ends.

    Args:
        model: The model.
        tracker: Its calls.
        rows: Where norms go.
        outputs: What its calls return.
        first: Whether to look for cuts.
    """

    def __init__(self, model: nn.Module, tracker: CallTracker, rows: Rows, outputs: Outputs, *, first: bool) -> None:
        self.loss = LossPart(tracker, rows, outputs)
        self.forwards = Forwards(model)
        self.cuts: list[Cut] = []
        """With every parameter upstream of them, starved or not."""
        self.cuts_off: list[Cut] = []
        """The same, in front of losses that no gradient reaches the model from."""
        self.left_over: list[Handle | None] | None = None
        """Norms of some gradients that the step's first backward pass added to; None where none did yet."""
        self._model = model
        self._tracker = tracker
        self._rows = rows
        self._finder = CutFinder(tracker) if first else None
        self._modes = Lingering((self.loss,) if self._finder is None else (self._finder, self.loss))
        self._stack = ExitStack()

    def __enter__(self) -> Evidence:
        with ExitStack() as stack:
            stack.callback(self.loss.outputs.close)
            if self._finder is not None:
                stack.enter_context(told_of_switches(self._finder.switched_off))
            self._tracker.on_outermost = self._outermost
            stack.callback(setattr, self._tracker, "on_outermost", None)
            stack.callback(self._modes.take_off)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def other_backward(self, backward: Backward) -> None:
        """See a backward pass begin that does not reach the model: what follows is no part of this one's loss.

        It may be another model's. Where the step ends without any other, its loss was cut off from the model.
        """
        self._modes.rest()
        self.cuts_off += self._blame(backward)

    def before_backward(self, backward: Backward) -> None:
        """See the step's own backward pass begin, with its graph still whole."""
        self._modes.rest()
        if self.left_over is None and backward.accumulates:
            grads = sorted((p.grad for p in self._model.parameters() if p.grad is not None), key=torch.Tensor.numel)
            self.left_over = self._rows.norms(grads[:_LOOKED_AT])
        self.loss.outputs.keep_gradients = backward.retains
        self.loss.outputs.listening = True
        self.cuts += self._blame(backward)

    def after_backward(self) -> None:
        """See it end."""
        self.loss.outputs.listening = False

    def before_step(self) -> None:
        """See an optimizer about to step: what it asks of parameters and gradients is no part of any loss."""
        self._modes.take_off()

    def _blame(self, backward: Backward) -> list[Cut]:
        if self._finder is None:
            return []
        wanted = {id(p): name for name, p in self._model.named_parameters() if p.requires_grad}
        return self._finder.blame(backward.roots, wanted)

    def _outermost(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            self.forwards.add(module, args, kwargs)
            self._modes.put_on()

