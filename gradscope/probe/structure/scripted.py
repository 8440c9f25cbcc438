"""What a TorchScript module does inside, where TorchScript runs several of its operations as one autograd node.

Its forward is run once more, on a copy of the module and of what it was given and with TorchScript's optimisation off:
autograd then shows each operation. What is found there stands in the graph for what the module really did, as `Trace`
nodes; the real forward is left alone, and its gradients are the module's as a whole.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from gradscope.probe.structure.operations import operation
from gradscope.probe.structure.terms import SUMS
from gradscope.probe.structure.trace import Trace
from gradscope.probe.watching.calling import alone
from gradscope.probe.watching.calls import Call
from gradscope.probe.watching.tensors import edge_of, listed

FUSED = "DifferentiableGraph"
"""The autograd node of operations that TorchScript runs as one."""

Splices = dict[tuple[int, int], Trace]
"""By the sequence number of a real node and its output, what stands for that output."""


def is_fused(module: nn.Module, output: Any, since: int) -> bool:
    """Tell whether a call of a module ended in a graph that TorchScript keeps to itself.

    Args:
        module: The module that was called.
        output: What it returned.
        since: The autograd sequence number at the beginning of the call.
    """
    if not isinstance(module, torch.jit.ScriptModule) or not torch.is_grad_enabled():
        return False
    waiting = [tensor.grad_fn for tensor in listed(output) if tensor.grad_fn is not None]
    seen: set[Any] = set(waiting)
    while waiting:
        node = waiting.pop()
        if operation(node.name()) == FUSED:
            return True
        inside = {n for n, _ in node.next_functions if n is not None and n._sequence_nr() >= since}
        waiting += inside - seen
        seen |= inside
    return False


def look_inside(
    module: nn.Module,
    args: tuple[Any, ...],
    output: Any,
    call: Call,
    *,
    trace: Callable[[Any], Trace],
    now: Callable[[], float],
) -> Splices | None:
    """Run a fused module again, in the open, and return what stands for each of its outputs.

    Args:
        module: The module.
        args: What it was given.
        output: What it returned.
        call: Its call.
        trace: Returns what stands for a tensor without a gradient.
        now: Returns a sequence number for what ran just now.

    Returns:
        The outputs; none where no sum was seen inside, None where the module cannot be run again.
    """
    given = {id(tensor): tensor for tensor in listed(args) if tensor.is_floating_point() or tensor.is_complex()}
    stand_ins = {key: tensor.detach().clone().requires_grad_() for key, tensor in given.items()}
    try:
        with _in_the_open():
            twin = _loaded_anew(module)
            repeated = twin(*_exchanged(args, stand_ins))
    except RuntimeError:  # arguments given by name, or control flow that depends on what has changed since
        return None
    known: dict[Any, Any] = {
        edge_of(stand_in).node: tuple(edge_of(given[key])) if given[key].requires_grad else trace(given[key])
        for key, stand_in in stand_ins.items()
    }
    own = dict(module.named_parameters())
    known.update(
        (edge_of(p).node, tuple(edge_of(own[name]))) for name, p in twin.named_parameters() if p.requires_grad
    )
    pairs = list(zip(listed(output), listed(repeated), strict=False))
    nodes = _traced([other.grad_fn for _, other in pairs if other.grad_fn is not None], known, call, now)
    if not _adds_up(nodes.values()):
        return {}
    return {
        (tensor.grad_fn._sequence_nr(), tensor.output_nr): nodes[other.grad_fn]
        for tensor, other in pairs
        if tensor.grad_fn is not None and other.grad_fn is not None
    }


@contextmanager
def _in_the_open() -> Iterator[None]:
    """Have nobody look on, random numbers stay as they are, and TorchScript run operation by operation."""
    optimised = torch._C._get_graph_executor_optimize()
    with alone(), torch.random.fork_rng():
        torch._C._set_graph_executor_optimize(False)
        try:
            yield
        finally:
            torch._C._set_graph_executor_optimize(optimised)


def _loaded_anew(module: nn.Module) -> nn.Module:
    """Return a copy that TorchScript has not run yet: what it has optimised stays so, in other copies too."""
    with warnings.catch_warnings(), io.BytesIO() as file:
        warnings.filterwarnings("ignore", ".*torch.jit.* is deprecated")
        torch.jit.save(module, file)
        file.seek(0)
        copy: nn.Module = torch.jit.load(file)
        return copy


def _exchanged(value: Any, stand_ins: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return stand_ins.get(id(value), value)
    if isinstance(value, dict):
        return {key: _exchanged(item, stand_ins) for key, item in value.items()}
    return type(value)(_exchanged(item, stand_ins) for item in value) if type(value) in {list, tuple} else value


def _traced(ends: list[Any], known: dict[Any, Any], call: Call, now: Callable[[], float]) -> dict[Any, Trace]:
    """Make a trace of each operation behind some nodes, in the order in which they ran."""
    waiting, behind = list(ends), set(ends)
    while waiting:
        sources = {n for n, _ in waiting.pop().next_functions if n is not None and n not in known}
        waiting += sources - behind
        behind |= sources
    traces: dict[Any, Trace] = {}
    for node in sorted(behind, key=lambda one: one._sequence_nr()):
        inputs = tuple(_input(known, traces, edge) for edge in node.next_functions)
        shape = tuple(node._input_metadata[0].shape)
        traces[node] = Trace(operation(node.name()), inputs, now(), shape, call, twin=node)
    return traces


def _adds_up(traces: Iterable[Trace]) -> bool:
    """Tell whether some operation may add two tensors of data."""
    data: set[Trace] = set()
    for trace in traces:
        sources = [item[0] if isinstance(item, tuple) else item for item in trace.inputs if item is not None]
        moving = [source for source in sources if source in data or not _is_parameter(source)]
        if moving:
            data.add(trace)
        if len(moving) > 1 and (trace.name in SUMS or trace.name == "Stack"):
            return True
    return False


def _is_parameter(source: Any) -> bool:
    """Tell whether what an operation took in is a parameter, or made of nothing but parameters."""
    if isinstance(source, Trace):
        return source.twin is not None
    return isinstance(getattr(source, "variable", None), nn.Parameter)


def _input(known: dict[Any, Any], traces: dict[Any, Trace], edge: tuple[Any, int]) -> Any:
    source, number = edge
    if source is None or source in known:
        return known.get(source)
    return traces[source], number
