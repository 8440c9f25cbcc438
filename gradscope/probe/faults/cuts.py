"""Where a graph is cut: why parameters that were used, and want a gradient, got none.

The forward is run once more under a function mode. An operation that takes something with a gradient and returns
something without is a cut; what is computed from its result is tainted by it. The cuts that matter are those that taint
the loss and lie downstream of a parameter that went without.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gradscope.probe.faults.switches import told_of_switches
from gradscope.probe.watching.calls import Call, CallTracker
from gradscope.probe.watching.eager import eagerly
from gradscope.probe.watching.modes import Function, LingeringMode, shielded
from gradscope.probe.watching.source import user_frame
from gradscope.probe.watching.tensors import inside_transform, tensors_in

_TO_NUMBERS = frozenset({"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__"})
"""Ways out of tensors: what is computed from the numbers can no longer be followed."""
_DRAWS = frozenset({"bernoulli", "binomial", "multinomial", "normal", "poisson"})
"""Random draws: what cuts the graph is the draw, whether it stands under `no_grad` (as in `sample`) or not."""
_LOOKS = frozenset(
    {
        "__get__", "__bool__", "__hash__", "__len__", "__repr__", "data_ptr", "dim", "element_size", "get_device",
        "is_complex", "is_contiguous", "is_floating_point", "numel", "size", "stride",
    }
)  # fmt: skip
"""Questions about a tensor; only the attribute `data` among the getters takes the values along."""


Source = tuple[int, Any]
"""Something with a gradient that goes into a cut: the tensor's id (for parameters) and its graph node."""


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
    finder = CutFinder(tracker)
    finder.awake = True
    with warnings.catch_warnings(), eagerly(model), tracker, told_of_switches(finder.switched_off), finder:
        warnings.simplefilter("ignore")  # the user has seen them already
        loss = forward()
    return finder.blame(loss, wanted)


class CutFinder(LingeringMode):
    """Note cuts, and what they taint.

    Args:
        tracker: Knows which call an operation runs in.
    """

    def __init__(self, tracker: CallTracker) -> None:
        super().__init__()
        self.cuts: list[Cut] = []
        self.escaped: set[int] = set()
        """Cuts whose values left the tensors for numbers, where they can no longer be followed."""
        self._tracker = tracker
        self._taints: dict[int, tuple[weakref.ref[torch.Tensor], set[int]]] = {}
        self._switched_off: list[tuple[str | None, int | None, Call | None]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = _name(func)
        if not self.awake or name in _LOOKS or inside_transform():
            return func(*args, **kwargs or {})
        return shielded(lambda call: self._look(name, call, args, kwargs or {}), func)

    def _look(self, name: str, call: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = list(tensors_in((args, kwargs), attributes=False))
        sources = [_source(tensor) for tensor in inputs if tensor.requires_grad]  # before detach_ acts
        result = call(*args, **kwargs)
        taints = set().union(*map(self._taint_of, inputs))
        outputs = list(tensors_in(args[:1] if name == "__setitem__" else result, attributes=False))
        cut = {self._note(name, sources)} if sources and (_ends(outputs) or name in _TO_NUMBERS) else set()
        if name in _TO_NUMBERS:
            self.escaped |= taints | cut
        for tensor in outputs if taints or cut else ():
            new = taints if tensor.requires_grad else taints | cut
            self._taints[id(tensor)] = (weakref.ref(tensor), self._taint_of(tensor) | new)
        return result

    def blame(self, losses: Any, wanted: dict[int, str]) -> list[Cut]:
        """Return the cuts that the losses were computed through, with the parameters that lose their gradient there.

        Args:
            losses: What was computed.
            wanted: The names of parameters, by their id.
        """
        taints = set().union(*map(self._taint_of, tensors_in(losses)))
        found = blamed([self.cuts[i] for i in sorted(taints)], wanted)
        explained = {name for cut in found for name in cut.parameters}
        rest = {key: name for key, name in wanted.items() if name not in explained}
        if rest:
            found += blamed([self.cuts[i] for i in sorted(self.escaped)], rest)
        return found

    def _taint_of(self, tensor: torch.Tensor) -> set[int]:
        held = self._taints.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else set()

    def switched_off(self) -> None:
        """Note where `no_grad` or one of its like is entered."""
        self._switched_off.append((*user_frame(), self._innermost()))

    def _innermost(self) -> Call | None:
        return self._tracker.stack[-1] if self._tracker.stack else None

    def _note(self, name: str, sources: list[Source]) -> int:
        call, (file, line) = self._innermost(), user_frame()
        if not torch.is_grad_enabled() and name not in ("detach", "data") and name not in _DRAWS:
            name = "no_grad"
            here = (file, line, call)
            file, line, call = next((place for place in reversed(self._switched_off) if place[0] is not None), here)
        self.cuts.append(Cut(name, call.module if call else "", call.call if call else 0, file, line, [], sources))
        return len(self.cuts) - 1


def _ends(outputs: list[torch.Tensor]) -> bool:
    """Whether a gradient ends here: nothing that came out has one, or what came out beside are places (of a sort)."""
    bare = [tensor for tensor in outputs if not tensor.requires_grad]
    return bool(bare) and (len(bare) == len(outputs) or any(not tensor.is_floating_point() for tensor in bare))


def _source(tensor: torch.Tensor) -> Source:
    """Return a tensor with a gradient as the source of a cut; a view that was taken without one has only its base's."""
    base = tensor._base if tensor.grad_fn is None and tensor._base is not None else tensor
    return id(base), base.grad_fn


def blamed(cuts: list[Cut], wanted: dict[int, str]) -> list[Cut]:
    """Give each of the wanted parameters (id -> name) to the cuts downstream of it, one cut for each place."""
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
