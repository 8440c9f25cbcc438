"""All signals of a run behind one object: who wants what, asked once; and no signal may disturb the watched model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradscope.probe.listing import named_modules
from gradscope.probe.settings import Level
from gradscope.probe.signals.absorption import Absorption
from gradscope.probe.signals.activations import Activations
from gradscope.probe.signals.attention import Attention
from gradscope.probe.signals.loss_inputs import LossInputs
from gradscope.probe.signals.magnitudes import Magnitudes
from gradscope.probe.signals.observer import (
    CallKey,
    Histogram,
    Observation,
    Observer,
    Readings,
    StepContext,
    readable,
)
from gradscope.probe.signals.peaks import Peaks
from gradscope.probe.signals.population import Population
from gradscope.probe.signals.similarity import Similarity
from gradscope.probe.signals.symmetry import Symmetry
from gradscope.probe.signals.targets import Targets
from gradscope.probe.watching.aside import Aside

SIGNALS: tuple[type[Observer], ...] = (
    Similarity, Activations, Attention, Peaks, Population, LossInputs, Magnitudes, Absorption, Symmetry, Targets,
)  # fmt: skip
"""Every signal taken inside a watched step; those that need passes of their own are called by the step loop."""

_LEVELS: dict[Level, int] = {"params": 0, "default": 1, "deep": 2}


class Signals:
    """The signals of one level, watching one model over its watched steps.

    Args:
        model: The watched model.
        level: Signals up to this level are taken.
        roles: Role of each module by name, as in the recording's table of modules.

    The watcher calls ``begin``, the events in the order that ``observer`` describes, ``finish`` and ``read``. A signal
    that raises (a tensor kind it cannot read) is left out from then on and named in ``failures``.
    """

    def __init__(self, model: nn.Module, level: Level, roles: Mapping[str, str]) -> None:
        self.readings = Readings()
        self.failures: dict[str, str] = {}
        self._observers = [s(self.readings) for s in SIGNALS if _LEVELS[s.level] <= _LEVELS[level]]
        self._model = model
        self._forward: dict[str, list[Observer]] = {}
        self._gradient: dict[str, list[Observer]] = {}
        self._function: dict[Callable[..., Any], list[Observer]] = {}
        for observer in self._observers:
            observer.attach(model)
            for function in observer.functions:
                self._function.setdefault(function, []).append(observer)
        for name, module in named_modules(model):
            for observer in self._observers:
                if observer.wants(name, module, roles.get(name, "other")):
                    table = self._gradient if observer.gradients else self._forward
                    table.setdefault(name, []).append(observer)
        self.functions = frozenset(self._function)
        """The functions whose calls ``function`` wants to see."""

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None = None) -> None:
        """Start a watched step; ``stations`` as known from an earlier step."""
        for observer in self._observers:
            observer.begin(step, stations)

    def wants_gradient(self, name: str) -> bool:
        """Say whether ``gradient`` is wanted for the calls of a module."""
        return name in self._gradient

    def forward(self, call: CallKey, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """Pass on one module call, right after its forward."""
        for observer in self._forward.get(call.module, ()):
            self._guarded(observer, observer.forward, call, module, inputs, output)

    def gradient(self, call: CallKey, grad: Tensor) -> None:
        """Pass on the gradient of a call's main output."""
        if readable(grad):
            for observer in self._gradient.get(call.module, ()):
                self._guarded(observer, observer.gradient, call, grad)

    def function(
        self, call: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Pass on one call of a torch function that is in ``functions``, right after it."""
        for observer in self._function.get(func, ()):
            self._guarded(observer, observer.function, call, func, args, kwargs, result)

    def addition(self, key: int, first: Tensor, second: Tensor) -> None:
        """Pass on the operands of an addition, before it runs."""
        if readable(first) and readable(second):
            for observer in self._observers:
                if observer.additions:
                    self._guarded(observer, observer.addition, key, first, second)

    def parameters(self, names: Sequence[str], grads: Tensor) -> None:
        """Pass on gradients of parameters as a backward left them (still multiplied by the loss scale).

        Args:
            names: Whose.
            grads: The gradient, or several of one shape stacked along the first axis.
        """
        for observer in self._observers:
            self._guarded(observer, observer.parameters, names, grads)

    def finish(self, context: StepContext) -> None:
        """End the step on the device: queue everything for the transfer."""
        for observer in self._observers:
            self._guarded(observer, observer.finish, context)

    def read(self) -> tuple[list[Observation], list[Histogram]]:
        """Bring the step's numbers over, in one transfer per device, and hand them out."""
        self.readings.read()
        observations, histograms = self.readings.observations, self.readings.histograms
        self.readings.observations, self.readings.histograms = [], []
        return observations, histograms

    def _guarded(self, observer: Observer, method: Callable[..., None], *args: Any) -> None:
        """Run one observer's method so that what it cannot read costs its numbers and never the user's step."""
        if type(observer).__name__ in self.failures or torch._C._functorch.peek_interpreter_stack() is not None:
            return
        with_gradients = torch.is_grad_enabled()
        if with_gradients:
            torch._C._set_grad_enabled(False)  # `no_grad` does this in four times the time
        try:
            with Aside():
                method(*args)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, KeyError) as error:
            self.failures[type(observer).__name__] = f"{type(error).__name__}: {error}".splitlines()[0]
        finally:
            if with_gradients:
                torch._C._set_grad_enabled(True)
