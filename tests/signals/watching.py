"""A small watcher for the tests of signals: plain hooks and a function mode around one forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gradscope.probe.settings import Level
from gradscope.probe.signals.hub import Signals
from gradscope.probe.signals.observer import Histogram, Observation, Place, StepContext


class _Mode(TorchFunctionMode):
    def __init__(self, signals: Signals, stack: list[Place]) -> None:
        super().__init__()
        self.signals, self.stack = signals, stack

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self.signals.functions:
            self.signals.function(self.stack[-1] if self.stack else Place(""), func, args, kwargs or {}, result)
        return result


class Watched:
    """The observations of one step, by (metric, module, call)."""

    def __init__(self, observations: list[Observation], histograms: list[Histogram], failures: dict[str, str]) -> None:
        assert not failures, failures
        self.values = {(o.metric, o.module, o.call): o.value for o in observations}
        self.histograms = {(h.kind, h.name): h for h in histograms}

    def __call__(self, metric: str, module: str, call: int = 0) -> float:
        return self.values[metric, module, call]

    def has(self, metric: str, module: str = "") -> bool:
        return any(key[0] == metric and key[1] == module for key in self.values)


def watch(
    model: nn.Module,
    run: Callable[[], Tensor],
    *,
    level: Level = "default",
    roles: dict[str, str] | None = None,
    context: StepContext | None = None,
) -> Watched:
    """Run a forward that returns the loss, and its backward, under all signals."""
    roles = {name: "other" for name, _ in model.named_modules()} | (roles or {})
    signals = Signals(model, level, roles)
    stack: list[Place] = []
    counts: dict[str, int] = {}
    handles = []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            counts[name] = counts.get(name, -1) + 1
            stack.append(Place(name, counts[name]))

        return hook

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        place = stack.pop()
        signals.forward(place, module, inputs, output)
        if isinstance(output, Tensor) and output.requires_grad and signals.wants_gradient(place.module):
            output.register_hook(lambda grad: signals.gradient(place, grad))

    for name, module in model.named_modules():
        handles += [module.register_forward_pre_hook(enter(name)), module.register_forward_hook(leave)]
    try:
        signals.begin(0)
        with _Mode(signals, stack):
            loss = run()
        loss.backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                signals.parameters([name], parameter.grad)
        signals.finish(context or StepContext())
    finally:
        for handle in handles:
            handle.remove()
    observations, histograms = signals.read()
    return Watched(observations, histograms, signals.failures)


def seeded(seed: int = 0) -> None:
    torch.manual_seed(seed)
