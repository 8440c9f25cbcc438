"""Where a graph is cut: why parameters that were used, and want a gradient, got none.

The forward is run once more under a function mode. An operation that takes something with a gradient and returns
something without is a cut; what is computed from its result is tainted by it. The cuts that matter are those that taint
the loss and lie downstream of a parameter that went without.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.grad_mode import inference_mode, no_grad, set_grad_enabled
from torch.overrides import TorchFunctionMode

from gradscope.probe.watching.calls import Call, CallTracker
from gradscope.probe.watching.eager import eagerly
from gradscope.probe.watching.source import user_frame
from gradscope.probe.watching.tensors import inside_transform, tensors_in

_TO_NUMBERS = frozenset({"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__"})
"""Ways out of tensors: what is computed from the numbers can no longer be followed."""
_LOOKS = frozenset(
    {
        "__get__", "__bool__", "__hash__", "__len__", "__repr__", "data_ptr", "dim", "element_size", "get_device",
        "is_complex", "is_contiguous", "is_floating_point", "numel", "size", "stride",
    }
)  # fmt: skip
"""Questions about a tensor; only the attribute `data` among the getters takes the values along."""


Source = tuple[int, Any]
"""Something with a gradient that went into a cut: the tensor's id (for parameters) and its graph node."""


@dataclass
class Cut:
    """One place at which gradients stop.

    Attributes:
        op: detach, data, no_grad, argmax, ...
        module: The innermost module call around it, "" outside of any.
        call: Which call of that module.
        file: The user's source file, absolute; None where none is known.
        line: The line in it.
        parameters: The parameters that get no gradient because of it.
    """

    op: str
    module: str
    call: int
    file: str | None
    line: int | None
    parameters: list[str] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list, repr=False)

    @property
    def place(self) -> tuple[str, str | None, int | None]:
        """What makes two cuts one: the same operation on the same line."""
        return self.op, self.file, self.line


def find_cuts(model: nn.Module, forward: Callable[[], Any], starved: Iterable[str]) -> list[Cut]:
    """Run a forward again and tell where the gradients of the starved parameters are lost.

    Args:
        model: The model.
        forward: Computes the loss. The caller restores what it changes.
        starved: Names of parameters that require a gradient and got none.
    """
    names = set(starved)
    wanted = {id(parameter): name for name, parameter in model.named_parameters() if name in names}
    tracker = CallTracker(model)
    finder = _Finder(tracker)
    with warnings.catch_warnings(), eagerly(model), tracker, finder.gradients_switched_off(), finder:
        warnings.simplefilter("ignore")  # the user has seen them already
        loss = forward()
    taints = finder.taint_of(loss)
    found = _blamed([finder.cuts[i] for i in sorted(taints)], wanted)
    explained = {name for cut in found for name in cut.parameters}
    rest = {key: name for key, name in wanted.items() if name not in explained}
    if rest:
        found += _blamed([finder.cuts[i] for i in sorted(finder.escaped)], rest)
    return found


class _Finder(TorchFunctionMode):
    """Note cuts, and what they taint."""

    def __init__(self, tracker: CallTracker) -> None:
        super().__init__()
        self.cuts: list[Cut] = []
        self.escaped: set[int] = set()
        """Cuts whose values left the tensors for numbers, where they can no longer be followed."""
        self._tracker = tracker
        self._taints: dict[int, set[int]] = {}
        self._kept: list[torch.Tensor] = []  # an id is only good while its tensor lives
        self._switched_off: list[tuple[str | None, int | None, Call | None]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        if name in _LOOKS or inside_transform():
            return func(*args, **kwargs)
        inputs = list(tensors_in((args, kwargs), attributes=False))
        sources = [(id(tensor), tensor.grad_fn) for tensor in inputs if tensor.requires_grad]  # before detach_ acts
        result = func(*args, **kwargs)
        taints: set[int] = set().union(*(self._taints.get(id(tensor), set()) for tensor in inputs))
        outputs = list(tensors_in(result, attributes=False))
        if sources and (name in _TO_NUMBERS or (outputs and not any(tensor.requires_grad for tensor in outputs))):
            taints.add(self._note(name, sources))
        if name in _TO_NUMBERS:
            self.escaped |= taints
        for tensor in outputs if taints else ():
            self._taints.setdefault(id(tensor), set()).update(taints)
            self._kept.append(tensor)
        return result

    def taint_of(self, value: Any) -> set[int]:
        """Return the cuts that a value was computed through."""
        return set().union(*(self._taints.get(id(tensor), set()) for tensor in tensors_in(value)))

    @contextmanager
    def gradients_switched_off(self) -> Iterator[None]:
        """Note where `no_grad` and its like are entered."""
        switches: tuple[tuple[Any, str], ...] = (
            (no_grad, "__enter__"), (inference_mode, "__enter__"), (set_grad_enabled, "__init__"),
        )  # fmt: skip
        originals = [getattr(kind, method) for kind, method in switches]

        def noting(original: Callable[..., Any]) -> Callable[..., Any]:
            def noted(this: Any, *args: Any, **kwargs: Any) -> Any:
                if original is not originals[-1] or not (args[0] if args else kwargs["mode"]):
                    self._switched_off.append((*user_frame(), self._innermost()))
                return original(this, *args, **kwargs)

            return noted

        for (kind, method), original in zip(switches, originals, strict=True):
            setattr(kind, method, noting(original))
        try:
            yield
        finally:
            for (kind, method), original in zip(switches, originals, strict=True):
                setattr(kind, method, original)

    def _innermost(self) -> Call | None:
        return self._tracker.stack[-1] if self._tracker.stack else None

    def _note(self, name: str, sources: list[Source]) -> int:
        call, (file, line) = self._innermost(), user_frame()
        if not torch.is_grad_enabled() and name not in ("detach", "data"):
            name = "no_grad"
            here = (file, line, call)
            file, line, call = next((place for place in reversed(self._switched_off) if place[0] is not None), here)
        self.cuts.append(Cut(name, call.module if call else "", call.call if call else 0, file, line, [], sources))
        return len(self.cuts) - 1


def _blamed(cuts: list[Cut], wanted: dict[int, str]) -> list[Cut]:
    """Give each starved parameter to the cuts downstream of it, one for each place."""
    order = {name: i for i, name in enumerate(wanted.values())}
    merged: dict[tuple[str, str | None, int | None], Cut] = {}
    for cut in cuts:
        names = sorted(_upstream(cut.sources, wanted), key=order.__getitem__)
        cut.sources = []
        if names:
            first = merged.setdefault(cut.place, cut)
            first.parameters += [name for name in names if name not in first.parameters]
    return list(merged.values())


def _upstream(sources: list[Source], wanted: dict[int, str]) -> Iterator[str]:
    seen: set[Any] = set()
    waiting: list[Any] = []
    for key, node in sources:
        if node is not None:
            waiting.append(node)
        elif key in wanted:
            yield wanted[key]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) in wanted:
            yield wanted[id(variable)]
        waiting += [following for following, _ in node.next_functions if following is not None]


def _name(func: Callable[..., Any]) -> str:
    name: str = getattr(func, "__name__", "")
    if name == "__get__":
        owner = getattr(getattr(func, "__self__", None), "__name__", "")
        return "data" if owner == "data" else name
    return name
