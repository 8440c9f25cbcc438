"""One watched step of one model: everything that is attached for it, in one context manager that takes it off again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import Any

import torch
from torch import nn

from gradscope.probe.deep import make_room
from gradscope.probe.evidence import Evidence
from gradscope.probe.garbage import undisturbed
from gradscope.probe.settings import Level
from gradscope.probe.signals.hub import Signals
from gradscope.probe.signals.observer import Place
from gradscope.probe.structure.additions import Addition
from gradscope.probe.structure.streams import StreamWatch
from gradscope.probe.structure.structure import Structure
from gradscope.probe.watching.aside import Aside
from gradscope.probe.watching.backward import Backward, BackwardListener, forget, listen
from gradscope.probe.watching.calls import Call, CallTracker, Listener
from gradscope.probe.watching.eager import eagerly
from gradscope.probe.watching.outputs import Outputs
from gradscope.probe.watching.parameters import Parameters
from gradscope.probe.watching.rows import Handle, Rows
from gradscope.probe.watching.scaling import LossScale


class StepWatch(BackwardListener):
    """Watch one step. Active between `__enter__` and `__exit__`; the numbers are read afterwards.

    Args:
        model: The model.
        tracker: Its calls; kept from step to step, since listing a model's modules takes time.
        level: `params` watches nothing but parameter gradients.
        signals: Measurements beyond norms.
        previous: The structure that an earlier step was found to have.
        guest: The step is taken by code that is not ours: the forward is whatever outermost call is made with
            gradients, and backward passes may be those of another model.
    """

    def __init__(
        self,
        model: nn.Module,
        tracker: CallTracker,
        rows: Rows,
        level: Level,
        signals: Signals | None = None,
        previous: Structure | None = None,
        *,
        guest: bool = False,
    ) -> None:
        self.model = model
        self.tracker = tracker
        self.rows = rows
        self.outputs = Outputs(rows)
        self.parameters = Parameters(model, rows, signals.parameters if signals is not None else None, traced=guest)
        self.num_backwards = 0
        self.roots: list[Handle | None] = []
        """The losses that backward passes started from, as they were (scaled)."""
        self.loss_scale: Handle | None = None
        self.unscaled_loss: Handle | None = None
        """The first loss before a GradScaler multiplied it."""
        self._level = level
        self._signals = signals
        self.stream = None if level == "params" else StreamWatch(model, tracker, rows, previous)
        self.evidence: Evidence | None = None
        if guest and self.stream is not None:
            self.evidence = Evidence(model, tracker, rows, self.outputs, first=previous is None)
        if self.stream is not None and signals is not None:
            self.stream.recorder.functions = signals.functions
            self.stream.recorder.on_function = self._function
            if self.evidence is not None:
                self.evidence.loss.functions = signals.functions
                self.evidence.loss.on_function = self._function
            self.stream.recorder.onlooker = self._addition
        self._guest = guest
        self._scaler = LossScale()
        self._stack = ExitStack()
        self._modes = ExitStack()

    def __enter__(self) -> StepWatch:
        with ExitStack() as stack:
            stack.enter_context(undisturbed())
            if self._level != "params":
                stack.enter_context(eagerly(self.model))
                self.tracker.reset()
                self.tracker.only_with_gradients = self._guest
                listener = Listener(self._entered, self._left, self._replayed, self._dropped)
                self.tracker.listeners.append(listener)
                stack.callback(self.tracker.listeners.remove, listener)
                stack.callback(self.outputs.close)
                if self.stream is not None:
                    stack.callback(self.stream.close)
                if self.evidence is not None:
                    stack.enter_context(self.evidence)
                stack.callback(self.tracker.release)
                stack.callback(self._modes.close)
                stack.enter_context(self.tracker)
            listen(self)
            stack.callback(forget, self)
            self._scaler.start()
            stack.callback(self._scaler.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def forward(self) -> AbstractContextManager[Any]:
        """See the operations of a forward and its loss, for code that we run ourselves."""
        return nullcontext() if self.stream is None else self.stream.forward()

    def started(self, backward: Backward) -> Backward | None:
        """Begin to listen where a backward pass is the training step's own."""
        if not self._is_own(backward):
            if backward.accumulates and self.evidence is not None:
                self.evidence.other_backward(backward)
            return None
        self.num_backwards += 1
        if self.evidence is not None:
            self.evidence.before_backward(backward)
        with torch.no_grad(), Aside():
            self.roots.extend(self.rows.keep(root) for root in backward.roots[:1] if root.numel() == 1)
            if self._scaler.scale is not None:
                self.loss_scale = self.rows.keep(self._scaler.scale)
            if self._scaler.loss is not None and self.unscaled_loss is None:
                self.unscaled_loss = self.rows.keep(self._scaler.loss)
        self.parameters.started()
        self.outputs.keep_gradients = backward.retains
        self.outputs.listening = True
        if self.stream is not None:
            self.stream.before_backward(backward.roots, retains=backward.retains)
        return backward

    def nested(self, roots: tuple[torch.Tensor, ...]) -> AbstractContextManager[Any]:
        """Listen where a checkpointed segment has been run again."""
        return nullcontext() if self.stream is None else self.stream.nested_backward(roots)

    def ended(self, token: Backward | None, result: Any) -> None:
        """Stop listening and take the gradients of the parameters."""
        if token is None:
            return
        self.outputs.listening = False
        if self.evidence is not None:
            self.evidence.after_backward()
        if self.stream is not None:
            self.stream.after_backward()
        with torch.no_grad():
            self.parameters.ended()
            if result is not None and not token.accumulates:
                self.parameters.returned(token.inputs, result)

    def _is_own(self, backward: Backward) -> bool:
        if self._guest and self.stream is not None and not self._reaches_model(backward.roots):
            return False
        if backward.accumulates:
            return True
        # `autograd.grad` is a penalty or an inner loop, unless it takes gradients of parameters outside of any forward.
        if backward.creates_graph or self.tracker.stack:
            return False
        parameters = {id(parameter) for parameter in self.model.parameters()}
        return any(id(tensor) in parameters for tensor in backward.inputs)

    def _reaches_model(self, roots: tuple[torch.Tensor, ...]) -> bool:
        """Tell whether something that the model returned is in the graph behind the roots."""
        wanted = {edge.node for call in self.tracker.calls if call.parent is None for edge in call.outputs}
        waiting: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
        seen = set(waiting)
        while waiting:
            node = waiting.pop()
            if node in wanted:
                return True
            following = [n for n, _ in node.next_functions if n is not None and n not in seen]
            seen.update(following)
            waiting += following
        make_room(len(seen))
        return False

    @property
    def touched(self) -> bool:
        """Whether a gradient has come to the model."""
        return bool(self.parameters.norms) or any(
            output.gradient is not None for outputs in self.outputs.of_call.values() for output in outputs
        )

    def _entered(self, call: Call, module: nn.Module) -> None:
        if self._guest and call.parent is None and self.stream is not None:
            self._modes.enter_context(self.stream.forward())

    def _dropped(self, call: Call) -> None:
        if self._guest and call.parent is None:
            self._modes.close()

    def _left(self, call: Call, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._guest and call.parent is None:
            self._modes.close()
        signals = self._signals
        listener = signals.gradient if signals is not None and signals.wants_gradient(call.module) else None
        self.outputs.add(call, output, listener)
        if signals is not None:
            signals.forward(call, module, args, output)

    def _replayed(self, call: Call, module: nn.Module, output: Any) -> None:
        signals = self._signals
        listener = signals.gradient if signals is not None and signals.wants_gradient(call.module) else None
        self.outputs.add_replayed(call, output, listener)

    def _function(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        assert self._signals is not None
        stack = self.tracker.stack
        self._signals.function(stack[-1] if stack else Place(""), func, args, kwargs, result)

    def _addition(self, addition: Addition, terms: list[torch.Tensor]) -> None:
        assert self._signals is not None
        if len(terms) == 2:  # noqa: PLR2004 - a skip and a branch
            self._signals.addition(id(addition), terms[0], terms[1])
