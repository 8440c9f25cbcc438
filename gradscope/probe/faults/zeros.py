"""Where gradients become exactly zero: an operation into which a gradient comes back and from which only zeros go on.

The derivative of `round`, `sign` or a random draw is zero everywhere, that of a ReLU or a clamp where it is flat, that
of a product where the other factor is zero. The step is run once more, and every node of its graph is looked at on the
way back; the zeros that matter are those upstream of which the silent parameters lie.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from gradscope.probe.faults.again import back_from_loss
from gradscope.probe.faults.cuts import Cut, blamed
from gradscope.probe.faults.nodes import Intervals, line_of, operation_of, remembered_lines
from gradscope.probe.watching.calls import CallTracker
from gradscope.probe.watching.eager import eagerly
from gradscope.probe.watching.tensors import differentiable, tensors_in
from gradscope.record import OUTSIDE_CALL
from gradscope.schema import BY_CONSTANT


def find_zeros(
    model: nn.Module,
    forward: Callable[[], Any],
    silent: Iterable[str],
    backward: Callable[[Any], None] | None = None,
) -> list[Cut]:
    """Run a step again and tell where the gradients of silent parameters become zero. The caller restores its changes.

    Args:
        model: The model.
        forward: Computes the loss.
        silent: Names of parameters whose gradient is exactly zero.
        backward: Goes back through what `forward` returned; `loss.backward()` by default.
    """
    names = set(silent)
    wanted = {id(parameter): name for name, parameter in model.named_parameters() if name in names}
    tracker = CallTracker(model)
    intervals = Intervals(tracker)
    found: list[tuple[int, Cut]] = []
    with warnings.catch_warnings(), eagerly(model), tracker, remembered_lines():
        warnings.simplefilter("ignore")  # the user has seen them already
        outcome = forward()
        handles = [node.register_hook(_Watch(node, intervals, found)) for node in _nodes(outcome)]
        try:
            (backward or back_from_loss)(outcome)
        finally:
            for handle in handles:
                handle.remove()
    return _nearest(found, wanted)


def _nearest(found: list[tuple[int, Cut]], wanted: dict[int, str]) -> list[Cut]:
    """Give every parameter to the place behind it that ran first: what lies further on is another one's."""
    rest, places = dict(wanted), list[Cut]()
    for _, cut in sorted(found, key=lambda pair: pair[0]):
        mine = blamed([cut], rest)
        taken = {name for place in mine for name in place.parameters}
        rest = {key: name for key, name in rest.items() if name not in taken}
        places += mine
    return places


class _Watch:
    """Looks at what comes back to one node and what goes on from it."""

    def __init__(self, node: Any, intervals: Intervals, found: list[tuple[int, Cut]]) -> None:
        self._node, self._intervals, self._found = node, intervals, found

    def __call__(self, onwards: tuple[torch.Tensor | None, ...], arriving: tuple[torch.Tensor | None, ...]) -> None:
        if all(_is_zero(gradient) for gradient in arriving):
            return
        following = self._node.next_functions
        ended = [
            source
            for (source, _), gradient in zip(following, onwards, strict=False)
            if source is not None and gradient is not None and _is_zero(gradient)
        ]
        if ended:
            call, (file, line) = self._intervals.call_of(self._node), line_of(self._node)
            place = (call.module, call.call) if call is not None else ("", OUTSIDE_CALL)
            cut = Cut(_operation(self._node), *place, file, line, [], [(0, node) for node in ended])
            self._found.append((self._node._sequence_nr(), cut))


def _operation(node: Any) -> str:
    """Return Clamp as clamp, ScaledDotProductAttention as scaled_dot_product_attention; a masking product says so."""
    plain = re.sub(r"(?<!^)(?=[A-Z])", "_", operation_of(node)).lower()
    return BY_CONSTANT if plain == "mul" and any(source is None for source, _ in node.next_functions) else plain


def _is_zero(gradient: torch.Tensor | None) -> bool:
    return gradient is None or not bool(gradient.any())


def _nodes(outcome: Any) -> Iterator[Any]:
    seen: set[Any] = set()
    waiting = [tensor.grad_fn for tensor in tensors_in(outcome) if differentiable(tensor) and tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.next_functions:
            yield node
        waiting += [following for following, _ in node.next_functions if following is not None]
