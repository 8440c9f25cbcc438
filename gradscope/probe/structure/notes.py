"""What autograd forgets of a forward but the search for residual additions needs.

Constants in products, tensors that enter the graph without needing a gradient, what was done in place to views, and
what ran without gradients inside re-entrant checkpoints.
"""

from __future__ import annotations

import math
import weakref
from bisect import bisect_right
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from gradscope.probe.structure.factor import Factor, factor_from
from gradscope.probe.structure.functions import DIVISIONS, ONE_STREAM, PRODUCTS, WEIGHTED, operation_of
from gradscope.probe.structure.operations import CHECKPOINT, Effect, effect_of, operation
from gradscope.probe.structure.readers import readers_of
from gradscope.probe.structure.scripted import look_inside
from gradscope.probe.structure.summands import is_number, numbers_given, tensors_among
from gradscope.probe.structure.taken import Taken, taken
from gradscope.probe.structure.trace import OUTSIDE, Trace, ran_since
from gradscope.probe.structure.weights import is_weight, keeps_weights
from gradscope.probe.watching.calls import Call
from gradscope.probe.watching.tensors import edge_of, inside_transform

_TICK = 2.0**-28
"""Orders what runs between two autograd nodes; small enough for 10^8 operations, large enough for a float of 10^6."""


def _scales_data(tensors: list[torch.Tensor], product: torch.Tensor) -> bool:
    """Tell whether a product may be data that need no gradient, times something small that is learned.

    A parameter itself, or what was computed from one (exp(log_k) * x, a vector for each of some features): a mask is
    not larger than what it is laid on, nor is what comes of it.
    """
    if any(isinstance(tensor, torch.nn.Parameter) for tensor in tensors):
        return True
    learned = max((tensor.numel() for tensor in tensors if tensor.requires_grad), default=0)
    return product.numel() > learned


class Notes:
    """What was seen of one forward, call by call of a torch function.

    Attributes:
        factors: By the sequence number of a product what it multiplied by.
        hidden: By the sequence number of a node what it takes in that autograd does not know: position and tensor.
        splices: By sequence number and output what computed the output of an opaque node (checkpointing).
        in_views: What was done in place to a view, by the sequence number of the node that keeps its base up to date.
        opened: The autograd functions whose inside is seen: re-entrant checkpointing, and those that call modules.
        looked_into: Calls of TorchScript modules that were run again to see what they do inside.
    """

    def __init__(self) -> None:
        self.factors: dict[float, Factor] = {}
        self.hidden: dict[int, list[tuple[int, Trace]]] = {}
        self.splices: dict[tuple[int, int], Trace] = {}
        self.in_views: dict[int, str] = {}
        self.opened = {CHECKPOINT}
        self.looked_into: set[Call] = set()
        self._functions_run: list[tuple[int, int]] = []
        """The autograd sequence numbers that torch functions of several operations were given, one after the other."""
        self._clock = 0
        self._parts: dict[Any, Trace] = {}
        """The parts that were taken of tensors without a gradient, by the tensor and the place."""
        self._traces: dict[int, tuple[weakref.ref[torch.Tensor], Trace]] = {}

    def ran(self, name: str, before: int) -> None:
        """Note that a function ran, and the sequence number that its first operation was given."""
        if sequence_now() - before > 1 and not name.startswith("_foreach"):
            self._functions_run.append((before, sequence_now()))

    def inside_function(self, sequence: float) -> bool:
        """Tell whether an operation ran inside a function of torch: what a recurrent cell adds up is its own affair."""
        place = bisect_right(self._functions_run, (sequence, math.inf)) - 1
        return place >= 0 and sequence < self._functions_run[place][1]

    def see(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        call: Call | None,
        before: int = 0,
    ) -> list[Trace]:
        """Note what a call of a torch function did.

        Args:
            name: The function's name.
            args: What it was given.
            kwargs: What it was given by name.
            result: What it returned.
            call: The innermost module call it ran in.
            before: The sequence number of its first operation.

        Returns:
            The traces of what came out without a gradient.
        """
        if inside_transform() or torch.is_inference_mode_enabled():
            return []
        first = result if isinstance(result, torch.Tensor) else next(iter(tensors_among((result,))), None)
        if first is None:
            return []
        # A view that is taken without gradients of what needs one says that it needs one as well, and has no node.
        if first.requires_grad and (first.grad_fn is not None or torch.is_grad_enabled()):
            self._note_graph(name, args, kwargs, first, before)
        elif first.is_floating_point() or first.is_complex():
            return self._note_trace(name, args, kwargs, result, call)
        return []

    def hide(self, sequence: int, position: int, trace: Trace) -> None:
        """Note a tensor without a gradient that goes into a node."""
        self.hidden.setdefault(sequence, []).append((position, trace))

    def _note_graph(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor, before: int
    ) -> None:
        node = result.grad_fn
        if node is None:
            return
        if args and result is args[0] and result._base is not None:
            sequence = sum_sequence(result)
            if sequence is not None:
                self.in_views[sequence] = operation_of(name, weighted=False)
        if name in PRODUCTS and len(args) > 1:
            self._note_factor(name, args, result, node._sequence_nr())
        tensors = list(tensors_among((*args, *kwargs.values()) if kwargs else args))
        self.splice(tensors)
        if name in WEIGHTED or (name in PRODUCTS and _scales_data(tensors, result)):
            raw = [
                (position, tensor)
                for position, tensor in enumerate(tensors[:1] if name in ONE_STREAM else tensors)
                if not (tensor.requires_grad or isinstance(tensor, torch.nn.Parameter))
                and is_number(tensor)
                and tensor.dim() > 0
            ]
            for (reader, place), (_, tensor) in zip(readers_of(node, [i for i, _ in raw], before), raw, strict=False):
                self.hide(reader._sequence_nr(), place, self.trace(tensor).without_gradient())

    def _note_factor(self, name: str, args: tuple[Any, ...], result: torch.Tensor, sequence: float) -> None:
        for factor in args[:2]:
            if isinstance(factor, int | float):
                value = (1.0 / factor if factor else None) if name in DIVISIONS else float(factor)
                self.factors[sequence] = Factor(value)
            elif isinstance(factor, torch.Tensor) and self._is_raw(factor):
                self.factors[sequence] = factor_from(factor, result)

    def _note_trace(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, call: Call | None
    ) -> list[Trace]:
        tensors = list(tensors_among((args, tuple(kwargs.values())) if kwargs else args))
        self.splice(tensors)
        inputs = self._inputs(name, tensors)
        weighted = any(isinstance(tensor, torch.nn.Parameter) for tensor in tensors)
        short = operation_of(name, weighted=weighted)
        numbers = [tensor for tensor in tensors if is_number(tensor)] if keeps_weights(short) else []
        weight = bool(numbers) and all(is_weight(tensor, self.hidden, self.maker_of) for tensor in numbers)
        parts = list(tensors_among((result,)))
        pieces = taken(name, args, kwargs, parts) or [Taken(short, numbers_given(name, args, kwargs))] * len(parts)
        made = []
        for part, (own, saved) in zip(parts, pieces, strict=True):
            if effect_of(short) is Effect.HAND_ON and any(part is tensor for tensor in tensors):
                continue  # `to` of the type it has, dropout that drops nothing: autograd has no node for them either
            trace = Trace(own, inputs, self._now(), tuple(part.shape), call, saved=saved, weight=weight)
            if own == "Index" and saved and trace.raw:  # a time step that is read twice is one tensor
                trace = self._parts.setdefault((inputs, tuple(saved.items())), trace)
            if name in PRODUCTS and len(args) > 1:
                self._note_factor(name, args, part, trace.sequence)
            self._remember(part, trace)
            made.append(trace)
        return made

    def _inputs(self, name: str, tensors: list[torch.Tensor]) -> tuple[Any, ...]:
        """Return where the inputs of a trace come from; of a product with data what has no gradient is but a factor."""
        if name.endswith("_like") or name.startswith("new_"):
            return ()  # only their shape is used
        if name in PRODUCTS and any(not (self._is_raw(t) or isinstance(t, torch.nn.Parameter)) for t in tensors):
            tensors = [tensor for tensor in tensors if not self._is_raw(tensor)]
        inputs: list[Any] = []
        for tensor in tensors:
            if tensor.requires_grad:
                if isinstance(maker := self.maker_of(tensor), Trace):
                    inputs.append(maker)
                elif not torch.is_grad_enabled():  # otherwise it was cut off
                    inputs.append(tuple(edge_of(tensor)))
            elif is_number(tensor):
                inputs.append(self.trace(tensor))
        return tuple(inputs)

    def _is_raw(self, tensor: torch.Tensor) -> bool:
        """Tell whether no gradient reaches a tensor, or what it was computed from without a graph."""
        maker = self.maker_of(tensor)
        return not tensor.requires_grad and (not isinstance(maker, Trace) or maker.raw)

    def look_inside(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any, call: Call) -> None:
        """See what a call did whose operations TorchScript keeps to itself."""
        found = look_inside(module, args, output, call, trace=self.trace, now=self._now)
        if found is not None:
            self.splices.update(found)
            self.looked_into.add(call)

    def source(self, node: Any, output_nr: int) -> Any:
        """Return what made a tensor: its autograd node, or the trace that stands for it."""
        return self.splices.get((node._sequence_nr(), output_nr), node) if self.splices else node

    def splice(self, tensors: list[torch.Tensor]) -> None:
        """Note which tensors are the output of an opaque node whose inside has been seen."""
        for tensor in tensors:
            known = self._traces.get(id(tensor))
            if known is None or not tensor.requires_grad or known[0]() is not tensor:
                continue
            node = tensor.grad_fn
            if node is not None and self._shows(node, known[1]):
                self.splices[node._sequence_nr(), tensor.output_nr] = known[1]

    def _shows(self, node: Any, trace: Trace) -> bool:
        """Tell whether what a node with a backward of its own did was seen: modules that were called inside of it.

        A function without modules is an operation like any other: which, its author knows.
        """
        name = operation(node.name())
        if name not in self.opened and isinstance(node, BackwardCFunction):
            since: int = node._sequence_nr()
            if len({inside.call for inside in ran_since([trace], since)}) > 1:
                self.opened.add(name)
        return name in self.opened

    def maker_of(self, tensor: torch.Tensor) -> Any:
        """Return what a tensor comes from: its autograd node, a trace, or None where nothing is known of it."""
        known = self._traces.get(id(tensor))
        return known[1] if tensor.grad_fn is None and known is not None and known[0]() is tensor else tensor.grad_fn

    def traces_of(self, tensors: list[torch.Tensor]) -> tuple[Trace, ...]:
        """Return what is known to stand for some tensors, of those without a gradient."""
        makers = [self.maker_of(tensor) for tensor in tensors]
        return tuple([maker for maker in makers if isinstance(maker, Trace)])

    def trace(self, tensor: torch.Tensor) -> Trace:
        """Return what stands for a tensor that needs no gradient."""
        known = self._traces.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        shape = tuple(tensor.shape) if not tensor.is_nested else ()
        trace = Trace("", (), OUTSIDE, shape, weight=isinstance(tensor, torch.nn.Parameter))
        self._remember(tensor, trace)
        return trace

    def _now(self) -> float:
        """Return a sequence number between the last autograd node and the next, larger than the last returned."""
        self._clock += 1
        return float(sequence_now()) - 0.5 + self._clock * _TICK

    def _remember(self, tensor: torch.Tensor, trace: Trace) -> None:
        self._traces[id(tensor)] = (weakref.ref(tensor), trace)


def sequence_now() -> int:
    """Return the sequence number that the next autograd node will have."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number


def sum_sequence(result: torch.Tensor) -> int | None:
    """Return the sequence number of the node that holds the sum; for a view written in place that of its base."""
    node = result.grad_fn
    if node is None:
        return None
    base = result._base
    if base is not None and base.grad_fn is not None and operation(base.grad_fn.name()) == "CopySlices":
        node = base.grad_fn
    number: int = node._sequence_nr()
    return number
