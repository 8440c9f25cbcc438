"""Run one step of a small model under the structure finder, and compare its flows with explicit autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge

from gradscope.probe.structure.additions import AdditionRecorder
from gradscope.probe.structure.analysis import analyse, attach
from gradscope.probe.structure.flows import SiteFlow
from gradscope.probe.structure.sites import Site
from gradscope.probe.structure.structure import Structure
from gradscope.probe.structure.trace import Trace
from gradscope.probe.watching.calls import CallTracker
from gradscope.probe.watching.rows import Rows


@dataclass
class Seen:
    """What a watched step has shown."""

    structure: Structure
    loss: torch.Tensor
    flows: list[SiteFlow]
    station_grads: list[float | None]
    numbers: list[float]

    @property
    def counted(self) -> list[Site]:
        return [site for site in self.structure.sites if site.counted]

    @property
    def kinds(self) -> list[str]:
        return [site.kind for site in self.counted]

    def number(self, handle: int | None) -> float | None:
        return None if handle is None else self.numbers[handle]


def plain_loss(output: Any) -> torch.Tensor:
    """A loss that no norm at the end makes trivial."""
    weight = torch.cos(torch.arange(output.numel(), dtype=output.dtype)).reshape(output.shape)
    total: torch.Tensor = (output * weight).sum()
    return total


def structure_of(
    model: nn.Module, *inputs: Any, loss: Callable[[Any], torch.Tensor] = plain_loss
) -> Structure:
    """Analyse one forward."""
    with CallTracker(model) as calls, AdditionRecorder(calls) as recorder:
        value = loss(model(*inputs))
    structure = analyse([value], recorder, model)
    assert structure is not None
    return structure


def watched(
    model: nn.Module,
    *inputs: Any,
    loss: Callable[[Any], torch.Tensor] = plain_loss,
    retain: bool = False,
) -> Seen:
    """Run a forward and backward with everything attached."""
    rows = Rows()
    with CallTracker(model) as calls, AdditionRecorder(calls, rows) as recorder:
        value = loss(model(*inputs))
    structure = analyse([value], recorder, model)
    assert structure is not None
    flows = attach(structure, rows)
    value.backward(retain_graph=retain)
    flows.finish()
    flows.remove()
    stations = list(flows.stations)
    numbers = rows.read()
    return Seen(structure, value, flows.sites, [None if h is None else numbers[h] for h in stations], numbers)


def explicit_flows(structure: Structure, loss: torch.Tensor) -> list[tuple[float, float, float, float] | None]:
    """Ask autograd itself, on a retained graph: gradient at the sum, through skip, through branch, inner product.

    Through the skip: the chain rule along its operations. Through the branch: `torch.autograd.grad` of the sum with
    respect to the stream, less the skip; in a parallel group of the branch's own term.
    """
    graph = structure.graph
    assert graph is not None
    found: list[tuple[float, float, float, float] | None] = []
    nodes = [site.node for site in structure.sites]
    for site in structure.sites:
        residual = site.residual
        edge = None if residual is None else graph.gradient_of(residual.join)
        ran = residual is not None and not isinstance(graph.nodes[residual.node], Trace)
        if residual is None or edge is None or not (ran and site.alive and site.counted):
            found.append(None)
            continue
        total = _grad(loss, GradientEdge(graph.nodes[residual.node], 0), None)
        join = GradientEdge(*edge)
        skip = _along(graph, residual, total)
        if residual.link.sums or nodes.count(residual.node) > 1:
            branch = _through_branch(graph, residual, total, join)
        else:
            everything = _grad(GradientEdge(graph.nodes[residual.node], 0), join, total)
            branch = everything - skip
        found.append((_norm(total), _norm(skip), _norm(branch), float((skip * branch).detach().sum())))
    return found


def _adder(graph: Any, residual: Any, total: torch.Tensor) -> tuple[int, Any]:
    """The node whose inputs are the terms, and what it sends back to each of them."""
    node, sent = residual.node, graph.nodes[residual.node](total)
    for inner in reversed(residual.skip.passed):
        position = next(p for source, _, p in graph.inputs[node] if source == inner)
        node, sent = inner, graph.nodes[inner](sent[position] if isinstance(sent, tuple) else sent)
    return node, sent


def _along(graph: Any, residual: Any, total: torch.Tensor) -> torch.Tensor:
    """Carry the gradient at the sum along the skip alone, operation by operation."""
    node, sent = _adder(graph, residual, total)
    links: list[Any] = []
    link = residual.link
    gradient = total
    while link is not None:
        links.insert(0, link)
        link = link.previous
    for nearer, tensor in zip([None, *links[:-1]], links, strict=True):
        reader = node if nearer is None else nearer.tensor[0]
        if nearer is not None:
            sent = graph.nodes[reader](gradient)
        positions = [p for source, number, p in graph.inputs[reader] if (source, number) == tensor.tensor]
        position = residual.skip.position if nearer is None and residual.skip.position in positions else positions[0]
        gradient = sent[position] if isinstance(sent, tuple) else sent
    return gradient


def _through_branch(graph: Any, residual: Any, total: torch.Tensor, join: GradientEdge) -> torch.Tensor:
    _, sent = _adder(graph, residual, total)
    tensor = residual.branch.tensors[0]
    return _grad(GradientEdge(graph.nodes[tensor[0]], tensor[1]), join, sent[residual.branch.position])


def _grad(output: Any, into: GradientEdge, gradient: torch.Tensor | None) -> torch.Tensor:
    grads = None if gradient is None else (gradient,)
    found = torch.autograd.grad((output,), (into,), grad_outputs=grads, retain_graph=True, allow_unused=True)[0]
    assert found is not None
    return found


def _norm(tensor: torch.Tensor) -> float:
    return math.sqrt(float((tensor.detach().double().abs() ** 2).sum()))


def doubled(value: Any) -> Any:
    """Return a batch in double precision."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: doubled(item) for key, item in value.items()}
    return type(value)(doubled(item) for item in value) if isinstance(value, tuple | list) else value
