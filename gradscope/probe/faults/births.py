"""Where the first NaN or infinity of a step is born: which operation, in which module, on which line.

A step that came out non-finite is run once more under a dispatch mode that looks at every operation, forward and
backward: the birthplace is one whose output is not finite although its inputs are. An infinity that was handed in as a
constant (the -inf of an attention mask) is no birth; the NaN that a softmax makes of a row of them is.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.probe.faults.again import back_from_loss
from gradscope.probe.faults.nodes import Intervals, line_of, operation_of, remembered_lines
from gradscope.probe.watching.calls import Call, CallTracker
from gradscope.probe.watching.eager import eagerly
from gradscope.probe.watching.source import user_frame
from gradscope.probe.watching.tensors import tensors_in
from gradscope.record import OUTSIDE_CALL

_MOST_BIRTHS = 3
"""Per direction; what comes after the first is mostly its offspring."""


@dataclass(frozen=True)
class Birth:
    """Where something became non-finite.

    Attributes:
        kind: nonfinite_forward or nonfinite_backward.
        module: The innermost module call around it, "" outside of any.
        call: Which call of that module.
        op: The operation.
        file: The user's source file, absolute; None where none is known.
        line: The line in it.
        detail: What came out of what, in words.
    """

    kind: str
    module: str
    call: int
    op: str
    file: str | None
    line: int | None
    detail: str


def find_births(
    model: nn.Module, forward: Callable[[], Any], batch: Any, backward: Callable[[Any], None] | None = None
) -> list[Birth]:
    """Run a step again and tell where it becomes non-finite. The caller restores what the step changes.

    Args:
        model: The model.
        forward: Computes the loss.
        batch: What `forward` feeds it, looked at first.
        backward: Goes back through what `forward` returned; `loss.backward()` by default.
    """
    given = [*_bad_inputs(batch), *_bad_weights(model)]
    if given:
        return given
    tracker = CallTracker(model)
    searcher = _Searcher(tracker, Intervals(tracker), {id(buffer): name for name, buffer in model.named_buffers()})
    with warnings.catch_warnings(), eagerly(model), tracker, remembered_lines():
        warnings.simplefilter("ignore")  # the user has seen them already
        with searcher:
            outcome = forward()
        searcher.backward = True
        with searcher:
            (backward or back_from_loss)(outcome)
    return searcher.births or searcher.brought_in[:1]


class _Searcher(TorchDispatchMode):
    """Look at what goes into and comes out of every operation."""

    def __init__(self, tracker: CallTracker, intervals: Intervals, buffers: dict[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.births: list[Birth] = []
        self.brought_in: list[Birth] = []
        """What counts only where nothing is born: a NaN that comes in may be overwritten before it is used."""
        self.backward = False
        self._tracker = tracker
        self._intervals = intervals
        self._buffers = buffers

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        mutable = func._schema.is_mutable
        before = worst_number((args, kwargs)) if mutable else None
        result = func(*args, **kwargs)
        name = func._schema.name.rpartition("::")[2]
        if "empty" in name or self._num_found() >= _MOST_BIRTHS:  # fresh memory holds anything
            return result
        after = worst_number(result)
        if after != "finite":
            before = before if before is not None else worst_number((args, kwargs))
            if after == before == "nan":
                self._brought_in(name, (args, kwargs), result)
            # A NaN may come of infinities; an infinity has to come of finite numbers.
            if before == "finite" or (after == "nan" and before == "inf" and not self.births):
                self._note(name, before, after, result)
        return result

    def _brought_in(self, name: str, given: Any, result: Any) -> None:
        """Note a NaN that comes from outside of the computation: a number in the program's text, or a buffer."""
        bad = [item for item in _flat(given) if isinstance(item, torch.Tensor) and worst_number(item) == "nan"]
        if not bad or name == "lift_fresh":  # that is how torch.tensor(...) comes in
            call, place = self._tracker.stack[-1] if self._tracker.stack else None, user_frame()
            detail = "nan is a number of the program's text"
            self.brought_in.append(self._birth("nonfinite_forward", call, "constant", place, detail))
            return
        buffer = next((self._buffers[id(item)] for item in bad if id(item) in self._buffers), None)
        if buffer is not None:
            module, detail = buffer.rpartition(".")[0], f"{buffer} holds nan before the step"
            self.brought_in.append(Birth("nonfinite_forward", module, 0, "buffer", None, None, detail))

    def _num_found(self) -> int:
        kind = "nonfinite_backward" if self.backward else "nonfinite_forward"
        return sum(birth.kind == kind for birth in self.births)

    def _note(self, name: str, before: str, after: str, result: Any) -> None:
        shapes = ", ".join(f"{'x'.join(map(str, t.shape)) or 'scalar'} {_format(t)}" for t in tensors_in(result))
        origin = "finite inputs" if before == "finite" else "inputs that contain infinities"
        detail = f"{after} came out of {origin} (output {shapes})"
        if self.backward:
            self._note_backward(name, detail)
            return
        call = self._tracker.stack[-1] if self._tracker.stack else None
        self.births.append(self._birth("nonfinite_forward", call, plain_name(name), user_frame(), detail))

    def _note_backward(self, name: str, detail: str) -> None:
        node = torch._C._current_autograd_node()
        if node is None:
            self.births.append(self._birth("nonfinite_backward", None, plain_name(name), (None, None), detail))
            return
        op = operation_of(node)
        detail = f"in the gradient of {op}, {detail}"
        call = self._intervals.call_of(node)
        self.births.append(self._birth("nonfinite_backward", call, op, line_of(node), detail))

    def _birth(self, kind: str, call: Call | None, op: str, place: tuple[str | None, int | None], detail: str) -> Birth:
        module, number = (call.module, call.call) if call is not None else ("", OUTSIDE_CALL)
        return Birth(kind, module, number, op, *place, detail)


def _format(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def worst_number(value: Any, *, tensors: bool = True) -> str:
    """Return finite, inf or nan for the worst number in a nested value; `tensors` says whether to look into them."""
    worst = "finite"
    for item in _flat(value):
        if isinstance(item, torch.Tensor):
            if not tensors or not (item.is_floating_point() or item.is_complex()) or item.is_meta or item.numel() == 0:
                continue
            if item.layout is not torch.strided:
                continue
            if bool(torch.isnan(item).any()):
                return "nan"
            if bool(torch.isinf(item).any()):
                worst = "inf"
        elif isinstance(item, float):
            if math.isnan(item):
                return "nan"
            if math.isinf(item):
                worst = "inf"
    return worst


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    else:
        yield value


def _bad_inputs(batch: Any) -> list[Birth]:
    bad = [tensor for tensor in tensors_in(batch) if tensor.is_floating_point() and worst_number(tensor) == "nan"]
    detail = "the batch itself holds nan"
    return [Birth("nonfinite_forward", "", 0, "input", None, None, detail)] if bad else []


def _bad_weights(model: nn.Module) -> list[Birth]:
    for name, parameter in model.named_parameters():
        if not is_lazy(parameter) and worst_number(parameter.detach()) != "finite":
            module = name.rpartition(".")[0]
            detail = f"{name} is not finite before the step"
            return [Birth("nonfinite_forward", module, 0, "parameter", None, None, detail)]
    return []


def plain_name(name: str) -> str:
    """Return an operation's name without what tells its variants apart."""
    return re.sub(r"^(native_|safe_)", "", name.strip("_"))
