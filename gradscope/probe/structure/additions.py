"""Every addition of a forward pass, as it runs: whose it is, where it is written, how large its terms are.

`AdditionRecorder` is a torch-function mode: it sees each torch call of the forward and hands it on unchanged. It also
notes what autograd forgets but the search for residual additions needs: constants in products, tensors that enter the
graph without needing a gradient, and what ran without gradients inside re-entrant checkpoints.
"""

from __future__ import annotations

import math
import sys
import weakref
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from gradscope.probe.structure.functions import DIVISIONS, ONE_STREAM, PRODUCTS, SUMS, WEIGHTED, operation_of
from gradscope.probe.structure.graph import OUTSIDE, Trace, lacks_data
from gradscope.probe.structure.operations import Effect, effect_of, operation
from gradscope.probe.structure.places import Span
from gradscope.probe.structure.summands import alike, as_added, is_number, tensors_among, terms_in
from gradscope.probe.watching.calls import Call, CallTracker, Listener
from gradscope.probe.watching.modes import Function, OwnMode, shielded
from gradscope.probe.watching.rows import Rows
from gradscope.probe.watching.tensors import edge_of, inside_transform

Key = tuple[str, int, int]
"""An addition across steps: (module, call of the module, which addition of that call)."""

Place = tuple[str, str | None, int | None]
"""Where an addition is written: (module, file, line)."""

_TICK = 2.0**-28
"""Orders what runs between two autograd nodes; small enough for 10^8 operations, large enough for a float of 10^6."""


@dataclass(slots=True)
class Addition:
    """One executed addition (or concatenation).

    Attributes:
        op: The function's name, "add_" for instance.
        call: The innermost module call it ran in, None outside of the model.
        key: What it is called on other steps.
        code: The code object of the user's function it is written in.
        line: The line in that file.
        terms: Handles of the norms of its terms as they are added, by their position among the operation's inputs.
        out: Handle of the norm of the sum.
        readable: Its values may be read; they must not inside of a functorch transform.
    """

    op: str
    call: Call | None
    key: Key
    code: CodeType | None = None
    line: int | None = None
    terms: tuple[int | None, ...] = ()
    out: int | None = None
    readable: bool = True

    @property
    def file(self) -> str | None:
        """The source file, as Python knows it."""
        return None if self.code is None else self.code.co_filename

    @property
    def place(self) -> Place:
        """Where it is written: loops run the same line of the same module again."""
        return self.call.module if self.call is not None else "", self.file, self.line


@dataclass(frozen=True, slots=True)
class Factor:
    """What a product multiplied by, where that has no gradient: a number, or None for a tensor (a mask)."""

    value: float | None
    elementwise: bool = False
    """The factor has an element for each element: a mask, not a scale."""


class AdditionRecorder(OwnMode):
    """Record the additions of one forward; enter it around the forward and the loss.

    Args:
        calls: The tracker of module calls that is active in the same forward.
        rows: Where norms go; None takes none.
        known: The additions whose norms are wanted; None means all that may be residual.
    """

    def __init__(self, calls: CallTracker, rows: Rows | None = None, known: frozenset[Key] | None = None) -> None:
        super().__init__()
        self.onlooker: Callable[[Addition, list[torch.Tensor]], None] | None = None
        """Told of every addition whose norms are wanted, with its terms, before it runs."""
        self.functions: frozenset[Callable[..., Any]] = frozenset()
        self.on_function: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any], None] | None = None
        """Told of every call of one of `functions`, right after it."""
        self.additions: dict[Any, Addition] = {}
        """By the autograd sequence number of the sum's node, or by its Trace."""
        self.factors: dict[int, Factor] = {}
        self.hidden: dict[int, list[tuple[int, Trace]]] = {}
        self.splices: dict[tuple[int, int], Trace] = {}
        self.in_views: dict[int, str] = {}
        """What was done in place to a view, by the sequence number of the node that keeps its base up to date."""
        self.unseen_sums: int = 0
        """Additions that ran without a gradient."""
        self.spans: list[Span] = []
        """The module calls of the forward, in the order in which they ended."""
        self._calls = calls
        self._starts: dict[Call, int] = {}
        self._listener = Listener(self._entered, self._left, None)
        self._rows = rows
        self._known = known
        self._counts: dict[int, int] = {}
        self._clock = 0
        self._traces: dict[int, tuple[weakref.ref[torch.Tensor], Trace]] = {}
        self._functions_run: list[tuple[int, int]] = []
        """The autograd sequence numbers that torch functions of several operations were given, one after the other."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return shielded(lambda call: self._look(func, call, args, kwargs or {}), func)

    def _look(self, func: Function, call: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name: str = getattr(func, "__name__", "")
        if name not in SUMS:
            before = _sequence_now()
            result = call(*args, **kwargs)
            if _sequence_now() - before > 1 and not name.startswith("_foreach"):
                self._functions_run.append((before, _sequence_now()))
            if isinstance(result, torch.Tensor | tuple | list) and type(result) is not torch.Size:
                self._note(name, args, kwargs, result, before)
            if func in self.functions and self.on_function is not None:
                self.on_function(func, args, kwargs, result)
            return result
        if torch._C._current_graph_task_id() != -1:
            return call(*args, **kwargs)
        return (self._transformed if inside_transform() else self._sum)(call, name, args, kwargs)

    def __enter__(self) -> Any:
        self._calls.listeners.append(self._listener)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)  # type: ignore[no-untyped-call]
        self._calls.listeners.remove(self._listener)

    def inside_function(self, sequence: float) -> bool:
        """Tell whether an operation ran inside a function of torch: what a recurrent cell adds up is its own affair."""
        place = bisect_right(self._functions_run, (sequence, math.inf)) - 1
        return place >= 0 and sequence < self._functions_run[place][1]

    def _entered(self, call: Call, _module: torch.nn.Module) -> None:
        self._starts[call] = _sequence_now()

    def _left(self, call: Call, _module: torch.nn.Module, _args: tuple[Any, ...], _output: Any) -> None:
        self.spans.append(Span(self._starts.pop(call, 0), _sequence_now(), call))

    @property
    def fused(self) -> list[str]:
        """Modules that were left to run as one fused operation of torch."""
        return list(dict.fromkeys(self._calls.fused))

    @property
    def _call(self) -> Call | None:
        return self._calls.stack[-1] if self._calls.stack else None

    # Sums ------------------------------------------------------------------------------------------------------------

    def _sum(self, call: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        addition = self._begin(name)
        terms = terms_in(name, args, kwargs)
        wanted = self._rows is not None and len(terms) > 1 and self._wants(addition, terms)
        if wanted and self.onlooker is not None:
            self.onlooker(addition, terms)
        if wanted and name.endswith("_"):  # in place: the first term is about to be overwritten
            addition.terms = self._norms(name, terms, args, kwargs)
        raw = [(i, self._trace(term)) for i, term in enumerate(terms) if not term.requires_grad and is_number(term)]
        result = call(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            return result
        if wanted and self._rows is not None:
            addition.terms = addition.terms or self._norms(name, terms, args, kwargs)
            addition.out = self._rows.norm(result)
        if not result.requires_grad:
            self._note(name, args, kwargs, result, addition=addition)
            return result
        sequence = _sum_sequence(result)
        if sequence is not None:
            self.additions[sequence] = addition
            self._splice(terms)
            for position, trace in raw:
                self.hidden.setdefault(sequence, []).append((position, trace.without_gradient()))
        return result

    def _transformed(self, call: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note where a sum inside of a functorch transform is written; its values must not be read."""
        addition, before = self._begin(name), _sequence_now()
        addition.readable = False
        result = call(*args, **kwargs)
        self.additions.update(dict.fromkeys(range(before, _sequence_now()), addition))
        return result

    def _begin(self, name: str) -> Addition:
        call = self._call
        count = self._counts[id(call)] = self._counts.get(id(call), -1) + 1
        addition = Addition(name, call, (call.module, call.call, count) if call is not None else ("", -1, count))
        if self._known is None:
            addition.code, addition.line = _written_at(sys._getframe(3))
        return addition

    def _wants(self, addition: Addition, terms: list[torch.Tensor]) -> bool:
        if self._known is not None:
            return addition.key in self._known
        first = terms[0]
        return (
            # Under re-entrant checkpointing the forward runs without gradients.
            (not torch.is_grad_enabled() or any(term.requires_grad for term in terms))
            and all(
                (term.is_floating_point() or term.is_complex()) and term.layout is torch.strided and term.dim() > 0
                for term in terms
            )
            and alike(addition.op, terms)
            and first.numel() > 1
        )

    def _norms(
        self, name: str, terms: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int | None, ...]:
        assert self._rows is not None
        return tuple([self._rows.norm(as_added(name, terms, i, args, kwargs)) for i in range(len(terms))])

    # What autograd does not keep --------------------------------------------------------------------------------------

    def _note(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        before: int = 0,
        *,
        addition: Addition | None = None,
    ) -> None:
        if inside_transform() or torch._C._current_graph_task_id() != -1:
            return
        first = result if isinstance(result, torch.Tensor) else next(iter(tensors_among((result,))), None)
        if first is None:
            return
        if first.requires_grad:
            self._note_graph(name, args, kwargs, first, before)
        elif first.is_floating_point() or first.is_complex():
            self._note_trace(name, args, kwargs, result, addition)

    def _note_graph(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor, before: int
    ) -> None:
        node = result.grad_fn
        if node is None:
            return
        if args and result is args[0] and result._base is not None:
            sequence = _sum_sequence(result)
            if sequence is not None:
                self.in_views[sequence] = operation_of(name, weighted=False)
        if name in PRODUCTS and len(args) > 1:
            self._note_factor(name, args, result, node)
        tensors = list(tensors_among((*args, *kwargs.values()) if kwargs else args))
        self._splice(tensors)
        if name in WEIGHTED or (name in PRODUCTS and any(isinstance(item, torch.nn.Parameter) for item in args)):
            raw = [
                (position, tensor)
                for position, tensor in enumerate(tensors[:1] if name in ONE_STREAM else tensors)
                if not (tensor.requires_grad or isinstance(tensor, torch.nn.Parameter))
                and is_number(tensor)
                and tensor.dim() > 0
            ]
            for (reader, place), (_, tensor) in zip(_readers_of(node, [i for i, _ in raw], before), raw, strict=False):
                trace = self._trace(tensor).without_gradient()
                self.hidden.setdefault(reader._sequence_nr(), []).append((place, trace))

    def _note_factor(self, name: str, args: tuple[Any, ...], result: torch.Tensor, node: Any) -> None:
        for factor in args[:2]:
            if isinstance(factor, int | float):
                value = (1.0 / factor if factor else None) if name in DIVISIONS else float(factor)
                self.factors[node._sequence_nr()] = Factor(value)
            elif isinstance(factor, torch.Tensor) and not factor.requires_grad:
                self.factors[node._sequence_nr()] = Factor(None, factor.numel() == result.numel())

    def _note_trace(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, addition: Addition | None
    ) -> None:
        tensors = list(tensors_among((args, tuple(kwargs.values())) if kwargs else args))
        inputs: list[Any] = []
        self._splice(tensors)
        for tensor in () if name.endswith("_like") or name.startswith("new_") else tensors:  # only their shape is used
            if tensor.requires_grad:
                if not torch.is_grad_enabled():  # otherwise it was cut off
                    inputs.append(tuple(edge_of(tensor)))
            elif tensor.is_floating_point() or tensor.is_complex():
                inputs.append(self._trace(tensor))
        weighted = any(isinstance(tensor, torch.nn.Parameter) for tensor in tensors)
        short = operation_of(name, weighted=weighted)
        for part in tensors_among((result,)):
            trace = Trace(short, tuple(inputs), self._now(), tuple(part.shape), self._call)
            self._remember(part, trace)
            if addition is not None and len(inputs) > 1 and addition.call is not None:
                self.unseen_sums += 1
                self.additions[trace] = addition

    def _splice(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            known = self._traces.get(id(tensor))
            if known is None or not tensor.requires_grad or known[0]() is not tensor:
                continue
            node = tensor.grad_fn
            if node is not None and operation(node.name()) == "CheckpointFunction":
                self.splices[node._sequence_nr(), tensor.output_nr] = known[1]

    def _trace(self, tensor: torch.Tensor) -> Trace:
        known = self._traces.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        trace = Trace("", (), OUTSIDE, tuple(tensor.shape) if not tensor.is_nested else ())
        self._remember(tensor, trace)
        return trace

    def _now(self) -> float:
        """Return a sequence number between the last autograd node and the next, larger than the last returned."""
        self._clock += 1
        return float(_sequence_now()) - 0.5 + self._clock * _TICK

    def _remember(self, tensor: torch.Tensor, trace: Trace) -> None:
        self._traces[id(tensor)] = (weakref.ref(tensor), trace)


def _sequence_now() -> int:
    """Return the sequence number that the next autograd node will have."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number


_RESHAPES = frozenset({"View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze"})


def _readers_of(node: Any, positions: list[int], before: int) -> list[tuple[Any, int]]:
    """Return the nodes that read inputs which autograd left out, and where among their inputs.

    A linear layer on more than two axes is a product between two reshapes: it is the product that works on the input.
    An attention is a function of many operations: its projections do.

    Args:
        node: The node of the function's output.
        positions: Where the inputs stand among the function's arguments.
        before: The sequence number of the function's first operation.
    """
    while operation(node.name()) in _RESHAPES and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    missing = _missing(node)
    if missing:
        return [(node, position if position in missing else missing[0]) for position in positions]
    inner = sorted(_lacking(node, before), key=lambda one: one._sequence_nr()) if positions else []
    return [(one, _missing(one)[0]) for one in inner] or [(node, position) for position in positions]


def _missing(node: Any) -> list[int]:
    return [place for place, (source, _) in enumerate(node.next_functions) if source is None]


def _lacking(node: Any, before: int) -> set[Any]:
    """The operations with weights, behind a node and in the same function, whose data autograd left out."""
    stack, seen = [node], {node}
    while stack:
        for source, _ in stack.pop().next_functions:
            if source is not None and source not in seen and source._sequence_nr() >= before:
                seen.add(source)
                stack.append(source)
    return {one for one in seen if effect_of(operation(one.name())) is Effect.PROJECT and lacks_data(one)}


def _sum_sequence(result: torch.Tensor) -> int | None:
    """Return the sequence number of the node that holds the sum; for a view written in place that of its base."""
    node = result.grad_fn
    if node is None:
        return None
    base = result._base
    if base is not None and base.grad_fn is not None and operation(base.grad_fn.name()) == "CopySlices":
        node = base.grad_fn
    number: int = node._sequence_nr()
    return number


_INSIDE: dict[str, bool] = {}
_TORCH_FOLDER = str(Path(torch.__file__).parent) + "/"
_OUR_FOLDER = str(Path(__file__).parents[1]) + "/"


def _written_at(frame: FrameType | None) -> tuple[CodeType | None, int | None]:
    """Find the innermost frame that is neither torch's nor ours."""
    while frame is not None:
        file = frame.f_code.co_filename
        inside = _INSIDE.get(file)
        if inside is None:
            inside = _INSIDE[file] = file.startswith((_TORCH_FOLDER, _OUR_FOLDER, "<"))
        if not inside:
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None, None
