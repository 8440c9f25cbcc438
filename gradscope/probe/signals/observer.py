"""What a signal is to the watcher: calls it receives, and numbers that stay on the device until the step is read.

The watcher owns every hook and mode; a signal only looks. Inside these calls a signal takes no host decision on a
device value, draws no random number, keeps nothing large alive and changes nothing: a watched step stays bitwise the
bare one. The hub calls observers under ``torch.no_grad()`` and outside any function mode.

Order within one step: ``begin`` · (``forward`` | ``function`` | ``addition``)* · ``gradient``* · ``parameters``* ·
``finish`` · one transfer (``Readings.read``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from gradscope.probe.settings import Level


class CallKey(Protocol):
    """Which call of which module; the watcher's own call record fits."""

    @property
    def module(self) -> str:
        """Qualified name of the module, "" for the root."""
        ...

    @property
    def call(self) -> int:
        """Which call of that module in this forward, from 0."""
        ...


class Place(NamedTuple):
    """The plainest CallKey."""

    module: str
    call: int = 0


@dataclass(frozen=True)
class Addition:
    """An addition seen in the forward that turned out to be a residual site.

    Attributes:
        key: The key that ``Observer.addition`` received for it.
        name: The site's name in the recording.
        call: Which of the additions with that name, from 0.
        skip: Which operand is the skip: 0 or 1.
        station: Its row in the stream, None off the stream.
    """

    key: int
    name: str
    call: int
    skip: int
    station: int | None = None


@dataclass(frozen=True)
class StepContext:
    """What the watcher knows once the backward is over.

    Attributes:
        stations: (module, call) of every station that a module's output closes; None where no stream was found.
        additions: The residual sites among the additions that were seen.
        loss_scale: The factor by which the gradients were scaled; 1 where none was used; None when unknown.
    """

    stations: frozenset[tuple[str, int]] | None = None
    additions: Sequence[Addition] = ()
    loss_scale: float | None = 1.0


class Observation(NamedTuple):
    """A row of the recording's ``observations``, without its step."""

    metric: str
    module: str
    call: int
    value: float


class Histogram(NamedTuple):
    """A row of the recording's ``histograms``, without its step."""

    name: str
    kind: str
    first_log2: int
    counts: list[int]
    zeros: int
    nonfinite: int


@dataclass
class Readings:
    """Numbers waiting on the device for the one transfer of the step.

    ``add`` keeps a 0-d tensor, ``add_vector`` a 1-d one with what to make of it on the host; ``read`` brings all over,
    one transfer per device, and hands the numbers out.
    """

    observations: list[Observation] = field(default_factory=list)
    histograms: list[Histogram] = field(default_factory=list)
    pending: list[Tensor] = field(default_factory=list)
    _readers: list[Callable[[Tensor], None]] = field(default_factory=list)
    _at_end: list[Callable[[], None]] = field(default_factory=list)

    def add(self, metric: str, module: str, call: int, value: Tensor | float) -> None:
        """Record one number of one thing, a host number at once and a device number when it arrives."""
        if isinstance(value, Tensor):
            self.add_derived(metric, Place(module, call), value.reshape(1), lambda numbers: numbers[0])
        else:
            self.observations.append(Observation(metric, module, call, float(value)))

    def add_derived(
        self, metric: str, key: CallKey, values: Tensor, finish: Callable[[list[float]], float | None]
    ) -> None:
        """Record one number that the host makes of a 1-d tensor when it arrives; None is not recorded."""
        module, call = key.module, key.call

        def reader(numbers: Tensor) -> None:
            value = finish(numbers.tolist())
            if value is not None:
                self.observations.append(Observation(metric, module, call, value))

        self.add_vector(values, reader)

    def add_vector(self, values: Tensor, reader: Callable[[Tensor], None]) -> None:
        """Keep a 1-d tensor; ``reader`` gets it on the host: in float64, whole numbers as they are."""
        self.pending.append(values.detach())
        self._readers.append(reader)

    def at_end(self, finish: Callable[[], None]) -> None:
        """Have something done once all numbers that were added before have been handed out."""
        self._at_end.append(finish)

    def read(self) -> None:
        """Transfer what is pending, one transfer per device, and hand the numbers to their readers."""
        pending, readers, at_end = self.pending, self._readers, self._at_end
        self.pending, self._readers, self._at_end = [], [], []
        whole = [not tensor.is_floating_point() for tensor in pending]
        arrived = {i: tensor.cpu() for i, tensor in enumerate(pending) if whole[i]}  # many numbers in few tensors
        for device in dict.fromkeys(tensor.device for tensor in pending):
            indices = [i for i, tensor in enumerate(pending) if tensor.device == device and not whole[i]]
            if indices:
                # float32 numbers are exact in float64; one conversion after the (promoting) concatenation.
                flat = torch.cat([pending[i] for i in indices]).to(torch.float64).cpu()
                arrived.update(zip(indices, torch.split(flat, [pending[i].numel() for i in indices]), strict=True))
        for i, reader in enumerate(readers):
            reader(arrived[i])
        for finish in at_end:
            finish()


class Observer:
    """A signal; every method may be left as it is.

    Attributes:
        level: The cheapest level that takes it.
        gradients: Whether ``gradient`` wants the gradients of the outputs that ``wants`` chose.
        functions: The torch functions whose calls ``function`` wants to see (in the forward and in the loss).
        additions: Whether ``addition`` wants to see the operands of additions.
        readings: Where its numbers go; the watcher gives one to all observers of a step.
    """

    level: Level = "default"
    gradients: bool = False
    functions: frozenset[Callable[..., Any]] = frozenset()
    additions: bool = False

    def __init__(self, readings: Readings) -> None:
        self.readings = readings

    def attach(self, model: nn.Module) -> None:
        """Look at the model once, before anything is asked of it."""

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:
        """Start a watched step; ``stations`` are known from an earlier one, None before the first."""

    def wants(self, name: str, module: nn.Module, role: str) -> bool:
        """Say, when hooks are attached, whether to be told of this module's calls."""
        return False

    def forward(self, call: CallKey, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """See one call of a wanted module, right after its forward."""

    def gradient(self, call: CallKey, grad: Tensor) -> None:
        """See the gradient of a wanted call's (first) output."""

    def function(
        self, call: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """See one call of a function in ``functions``, right after it, with the innermost module call around it."""

    def addition(self, key: int, first: Tensor, second: Tensor) -> None:
        """See the operands of an addition, as they are added (after scaling), before it runs."""

    def parameters(self, names: Sequence[str], grads: Tensor) -> None:
        """See the gradients of some parameters once a backward is over (and unscaled or not: see context).

        A single gradient comes as it is, several of one shape are stacked. Another backward shows them again.
        """

    def finish(self, context: StepContext) -> None:
        """Queue what is left for the transfer and forget the step's tensors."""


def readable(tensor: Tensor) -> bool:
    """Say whether a tensor holds plain dense floating-point values on one device."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.is_floating_point()
        and not tensor.is_meta
        and not tensor.is_nested
    )


def first_tensor(value: Any) -> Tensor | None:
    """Return the first readable tensor in any nesting of tuples, lists, dicts and objects with a ``to_tuple``."""
    if isinstance(value, Tensor):
        return value if readable(value) else None
    if isinstance(value, dict):
        value = value.values()
    elif hasattr(value, "to_tuple"):
        value = value.to_tuple()
    elif not isinstance(value, tuple | list):
        return None
    return next((found for item in value if (found := first_tensor(item)) is not None), None)
