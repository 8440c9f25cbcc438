"""Follow a model through a training loop that is not ours: which steps there are, and watch some of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import nn

from gradscope.probe.attach import StepWatch
from gradscope.probe.closer import note_births_of_loop, note_zeros_of_loop, write_cuts
from gradscope.probe.session import Outcome, Session
from gradscope.probe.watching import calling, optimizing
from gradscope.probe.watching.alive import held_by, optimizers_of, parameter_ids
from gradscope.probe.watching.optimizers import learning_rate
from gradscope.probe.watching.optimizing import OptimizerListener
from gradscope.probe.watching.parameters import traces
from gradscope.probe.watching.updates import Updates

_MOST_SKIPPED = 128
"""Attempts at one step that a GradScaler may skip: it halves its scale at each, and float32 has 127 powers of two."""


class Follower(OptimizerListener):
    """Watch chosen steps of one model in a loop that somebody else runs.

    A step ends when its optimizer has stepped: at the next outermost forward where several optimizers may step in a
    row, at once where they are known. Loops without a torch optimizer are told apart by their weights changing between
    two forwards. On steps that are not wanted nothing is attached but torch's own optimizer hooks.

    Args:
        session: The session of the model.
        wanted: Which steps to watch.
        ended: Told of every step that has ended, with its number and whether it was watched; may raise to stop.
    """

    def __init__(
        self, session: Session, wanted: Callable[[int], bool], ended: Callable[[int, bool], None] | None = None
    ) -> None:
        self.session = session
        self.number = 0
        """The step that is under way."""
        self.optimizers: list[torch.optim.Optimizer] = []
        """The optimizers that have been seen to step the model."""
        self.watch: StepWatch | None = None
        self._wanted = wanted
        self._ended = ended
        self._owned: dict[int, bool] = {}
        self._cycle: set[int] = set()
        self._stepped: set[int] = set()
        self._skipped = False
        self._num_skipped = 0
        self._went_wrong = False
        self._cleared = False
        """Whether gradients of the model were thrown away in the step under way."""
        self._others_step = False
        """Whether the gradients that have come were used by an optimizer of another model: a generator's, say."""
        self._updates: Updates | None = None
        self._changed_by_hand = False
        self._by_hand: nn.Module | None = None
        self._left: list[tuple[int, int | None]] = []
        self._stack = ExitStack()

    def start(self) -> None:
        """Begin to follow, with step 0."""
        optimizing.listen(self)
        self._begin()

    def stop(self) -> None:
        """Stop following; a step that is over, but for the next forward to say so, is kept."""
        optimizing.forget(self)
        tried_in_vain = self._skipped and not self._stepped and self.number > 0
        if self.watch is not None and not tried_in_vain and (
            self._over or (self.watch.touched and not self.optimizers)
        ):
            self._finish()
        self._detach()

    def stepping(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at the weights before the first optimizer of a watched step changes them."""
        if id(optimizer) in self._stepped:  # its next step begins with no forward in between: a closure follows
            self._finish_cycle()
        if self.watch is not None and self.watch.evidence is not None:
            self.watch.evidence.before_step()
        if self.watch is not None and self._updates is None and self._owns(optimizer):
            self._updates = Updates(self.session.model, self.watch.rows)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the step where it is known to be over."""
        if not self._owns(optimizer):
            self._others_step = self._others_step or self.touched
            return
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
        self._stepped.add(id(optimizer))
        # The step is not over yet where other optimizers step after this one, or where it is not known if any do.
        known = bool(self._cycle) or self.watch is None
        if known and self._cycle <= self._stepped:
            self._next()

    def cleared(self, owner: torch.optim.Optimizer | nn.Module) -> None:
        """Start the step afresh where gradients that have come so far are thrown away (another network's step)."""
        mine = self._owns(owner) if isinstance(owner, torch.optim.Optimizer) else self._contains(owner)
        self._cleared = self._cleared or mine
        if self.watch is None or self._over or not self.watch.touched:
            return
        if mine and self._in_closure:
            self._stack.close()  # the closure is about to be evaluated again: the step's own evaluation was the first
        elif mine and not self.optimizers and self._weights_changed(self.watch):
            self._changed_by_hand = True
        elif mine:
            self._restart()

    def scaled(self) -> None:
        """Note that a GradScaler has let a step pass without taking it."""
        if self.watch is not None and not self._stepped and self.watch.touched and self.watch.loss_scale is not None:
            self._skipped = True

    @property
    def _over(self) -> bool:
        """Whether the step is over and only waits for the next one to begin."""
        return bool(self._stepped) or self._skipped or self._changed_by_hand

    @property
    def touched(self) -> bool:
        """Whether a gradient has come to the model in the step under way."""
        return self.watch is not None and self.watch.touched

    @property
    def _in_closure(self) -> bool:
        return any(self._owns(optimizer) for optimizer in optimizing.stepping_now())

    def _weights_changed(self, watch: StepWatch) -> bool:
        return _weights(watch.parameters.left) != _weights(traces(self.session.model))

    def _forward(self, module: nn.Module) -> None:
        """See an outermost forward begin: after a step it belongs to the next one."""
        watch = self.watch
        if watch is None or watch.tracker.stack or not torch.is_grad_enabled():
            return
        if torch._C._current_graph_task_id() != -1 or watch.tracker.name_of(module) is None:
            return
        if self._in_closure:
            if watch.touched:
                self._stack.close()  # evaluated again
            return
        unowned = not self._over and not self.optimizers and watch.touched
        if unowned and watch.parameters.left != traces(self.session.model):
            self._changed_by_hand = True  # or gradients cleared, by no optimizer that we see
        if self._changed_by_hand:
            self._by_hand = module
        if self._over:
            self._finish_cycle()
        elif self._others_step:
            self._restart()

    def _restart(self) -> None:
        self._detach()
        self._begin()

    def _finish_cycle(self) -> None:
        self._cycle = set(self._stepped) or self._cycle
        if self._skipped and not self._stepped and self._num_skipped < _MOST_SKIPPED:
            self._num_skipped += 1
            self._restart()  # no step was taken: the next batch tries again at a smaller scale
        else:
            self._next()

    def _forward_by_hand(self, module: nn.Module) -> None:
        """Count the steps that are not watched in a loop without an optimizer."""
        if module is self._by_hand and torch.is_grad_enabled():
            now = traces(self.session.model)
            if now != self._left:
                self._left = now
                self._next()

    def _next(self) -> None:
        number, watched = self.number, self.watch is not None
        if watched:
            self._finish()
        self._detach()
        self.number += 1
        self._cleared = False
        self._begin()
        if self._ended is not None:
            self._ended(number, watched)

    def _begin(self) -> None:
        self._stepped, self._updates = set(), None
        self._skipped = self._changed_by_hand = self._others_step = False
        if not self._wanted(self.number):
            if self._by_hand is not None:
                self._left = traces(self.session.model)
                calling.inform(self._forward_by_hand)
                self._stack.callback(calling.dismiss, self._forward_by_hand)
            return
        with ExitStack() as stack:
            self.watch = stack.enter_context(self.session.step(self.number))
            calling.inform(self._forward)
            stack.callback(calling.dismiss, self._forward)
            optimizing.listen_closely(self)
            stack.callback(optimizing.forget_closely, self)
            self._stack = stack.pop_all()

    def _detach(self) -> None:
        self._stack.close()
        self.watch = None

    def _finish(self) -> None:
        watch, updates = self.watch, self._updates
        assert watch is not None
        if not watch.touched and not self._stepped:
            return
        self._stack.close()  # the signals queue their last numbers here
        if updates is None:
            updates = Updates(self.session.model, watch.rows, changes=False)
        elif self._stepped:
            updates.after()
        if self._num_skipped:
            self.session.tables.add(
                "events", step=self.number, kind="rescaled", module="", call=0, op="GradScaler",
                detail=f"{self._num_skipped} attempts before this step were skipped: a gradient was not finite",
            )  # fmt: skip
            self._num_skipped = 0
        if self._skipped:
            self.session.tables.add(
                "events", step=self.number, kind="skipped", module="", call=0, op="GradScaler",
                detail="the optimizer step was skipped: a gradient was not finite at this loss scale",
            )  # fmt: skip
        lr = learning_rate(next(iter(self.optimizers), None))
        outcome = self.session.record(self.number, watch, updates, lr, watch.unscaled_loss)
        self._look_closer(watch, updates, outcome)

    def _look_closer(self, watch: StepWatch, updates: Updates, outcome: Outcome) -> None:
        """Tell where a step became non-finite (once), zero or was cut off, and what an earlier step has left."""
        tables, model = self.session.tables, self.session.model
        if not outcome.finite and not self._skipped and not self._went_wrong:
            self._went_wrong = True
            changed = updates if self._stepped else None
            note_births_of_loop(tables, self.number, model, watch, outcome.in_loss, changed)
        elif outcome.starved and watch.evidence is not None:
            starved = self._meant_to_learn(outcome.starved)
            known = watch.evidence.cuts if watch.touched else watch.evidence.cuts_off
            cuts = [replace(cut, parameters=[p for p in cut.parameters if p in starved]) for cut in known]
            write_cuts(tables, self.number, [cut for cut in cuts if cut.parameters])
        if outcome.finite and outcome.silent:
            note_zeros_of_loop(tables, self.number, model, watch, outcome.silent, updates)
        if outcome.kept and self.number > 0 and not self._cleared:
            detail = "gradients of an earlier step"
            tables.add("events", step=self.number, kind="kept", module="", call=0, detail=detail)

    def _meant_to_learn(self, names: list[str]) -> set[str]:
        """Leave out parameters that no optimizer holds, where others are held: a target network, a frozen encoder."""
        model = self.session.model
        held = {key for optimizer in optimizers_of(model) for key in held_by(optimizer)} if self.optimizers else set()
        idle = {name for name, p in model.named_parameters() if held and id(p) not in held}
        return set(names) - idle

    def _owns(self, optimizer: torch.optim.Optimizer) -> bool:
        known = self._owned.get(id(optimizer))
        if known is None:
            known = bool(parameter_ids(self.session.model) & held_by(optimizer))
            self._owned[id(optimizer)] = known
        return known

    def _contains(self, module: nn.Module) -> bool:
        model = self.session.model
        return module is model or any(child is model for child in module.modules())


def _weights(traced: list[tuple[int, int | None]]) -> list[int]:
    return [weight for weight, _ in traced]
