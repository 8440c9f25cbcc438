"""Query, key and value gradients of every attention, also where one weight serves all three.

A fused weight's gradient is the three gradients next to each other. Which of its rows (or columns, or heads) belong to
the query is asked of autograd: a random cotangent at the query alone reaches exactly those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from gradscope.probe.restore import untouched
from gradscope.probe.signals.observer import Observation
from gradscope.probe.signals.subbatch import batch_size, fresh, part
from gradscope.probe.structure.attention import ROLES, Attention, find_attentions
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.traversal import walk
from gradscope.probe.uncompiled import pull_back
from gradscope.probe.watching.tensors import tensors_in

FEW = 2
"""Samples (count) that a graph needs at least: some models squeeze a single one away."""
_SEED = 7919
"""Of the generator that draws cotangents."""


def attention_gradients(model: nn.Module, forward: Callable[[Any], Any], batch: Any) -> list[Observation]:
    """Return query_grad_norm, key_grad_norm and value_grad_norm of every attention that has a fused weight.

    A part of the batch goes through the model once more (all of it where its tensors cannot be cut alike, such as the
    patches of all pictures in one axis), for its graph; the norms are those of the ``.grad`` that the
    step has left. Nothing is written.

    Args:
        model: The model, after a backward pass.
        forward: Runs it on a batch.
        batch: The step's batch.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    generator = torch.Generator().manual_seed(_SEED)
    with untouched(model), torch.enable_grad():
        output = _output(forward, batch)
        graph = walk([tensor.grad_fn for tensor in tensors_in(output) if tensor.grad_fn is not None])
        return [
            observation
            for attention in find_attentions(graph)
            for observation in _of_one(graph, attention, names, generator)
        ]


def _output(forward: Callable[[Any], Any], batch: Any) -> Any:
    size = batch_size(batch)
    if size is not None and size > FEW:
        try:
            return forward(fresh(part(batch, 0, max(FEW, size // 4))))
        except Exception:  # what a model makes of tensors that do not belong together is its own
            return forward(fresh(batch))
    return forward(fresh(batch))


def _of_one(
    graph: Graph, attention: Attention, names: dict[int, str], generator: torch.Generator
) -> Iterator[Observation]:
    """Yield the three norms of one attention; nothing where no weight is shared or a part cannot be told."""
    used = [weight for role in ROLES for weight in attention.weights[role]]
    if len({id(weight) for weight in used}) == len(used) or not all(id(weight) in names for weight in used):
        return
    norms = {role: _norm(graph, attention, role, generator) for role in ROLES}
    if any(norm is None for norm in norms.values()):
        return
    module = names[id(attention.weights["value"][0])].rpartition(".")[0]
    for role, norm in norms.items():
        assert norm is not None
        yield Observation(f"{role}_grad_norm", module, 0, norm)


def _norm(graph: Graph, attention: Attention, role: str, generator: torch.Generator) -> float | None:
    squares = 0.0
    for weight in attention.weights[role]:
        if type(weight.grad) is not Tensor:  # none arrived, or one that lies on several devices
            return None
        mine = _places(graph, attention.tensors[role], weight, generator)
        if mine is None:
            return None
        axis, index = mine
        squares += float(torch.linalg.vector_norm(weight.grad.index_select(axis, index), dtype=torch.float32)) ** 2
    return math.sqrt(squares) if attention.weights[role] else None


def _places(
    graph: Graph, tensor: tuple[int, int], weight: Tensor, generator: torch.Generator
) -> tuple[int, Tensor] | None:
    """Return the axis of a weight and the places along it that a tensor is made of; None where they are mixed up."""
    shape = graph.shape(tensor)
    if shape is None:
        return None
    edge = GradientEdge(graph.nodes[tensor[0]], tensor[1])
    v = torch.randn(shape, generator=generator).to(weight.device, weight.dtype)
    grad = pull_back(edge, weight, v)
    if grad is None:
        return None
    reached = grad != 0
    for axis in range(weight.dim()):
        along = reached.movedim(axis, 0).flatten(1).any(1)
        if int(along.sum()) < weight.shape[axis]:
            return axis, along.nonzero()[:, 0]
    return 0, torch.arange(weight.shape[0], device=weight.device)
