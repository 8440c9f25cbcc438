"""Which modules are the blocks of a network: the repeated ones whose outputs every gradient has to pass."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.lineage import weights_of
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.places import Places, ancestry
from gradscope.probe.watching.calls import Call

DIGITS = re.compile(r"\d+")
"""What tells the names of repeated modules apart."""
_WORK = frozenset({Effect.PROJECT, Effect.ATTEND, Effect.RECUR, Effect.OPAQUE})
"""What makes a module more than a norm, an activation or a change of shape."""


@dataclass(slots=True)
class Series:
    """Modules of one place in the tree that differ by numbers only ("layers.#"), or one module called repeatedly.

    Attributes:
        pattern: Their names with numbers replaced.
        ends: The tensors they return, with the call; one call may return several that every gradient has to pass.
        containers: They have modules inside.
    """

    pattern: str
    ends: dict[Tensor, Call] = field(default_factory=dict)
    containers: bool = False

    def rank(self, with_sites: set[Call]) -> tuple[int, int, str]:
        """Sort first what repeats most often (with residual additions, where there are any), then what is outer."""
        calls = {call for call in self.ends.values() if not with_sites or call in with_sites}
        return (-len(calls), self.pattern.count("."), self.pattern)


def blocks_on(
    graph: Graph, places: Places, chain: Iterable[int], parents: set[str], with_sites: set[Call]
) -> dict[Tensor, Call]:
    """Return the outputs of the blocks on a chain of dominators, with the block's call.

    Args:
        graph: The graph.
        places: Who ran what.
        chain: Nodes that every gradient passes.
        parents: Names of modules that have modules inside.
        with_sites: Calls with residual additions inside; where there are any, only these are blocks.
    """
    series = _series(graph, places, chain, parents)
    series.sort(key=lambda one: one.rank(with_sites))
    chosen: dict[Tensor, Call] = {}
    names: set[str] = set()
    leaves = [one for one in series if not one.containers]
    for one in series:
        if not one.containers or len(set(one.ends.values())) < 2:  # noqa: PLR2004 - a block is what is repeated
            continue
        if with_sites and not any(call in with_sites for call in one.ends.values()):
            continue
        modules = {call.module for call in one.ends.values()}
        if any(_nested(module, other) for module in modules for other in names):
            continue
        names |= modules
        chosen.update(one.ends)
    if with_sites or _covers(chosen, leaves):
        return chosen
    return _without_head(graph, leaves)


def layers_on(
    graph: Graph, places: Places, chain: Iterable[int], parameters: Mapping[int, str]
) -> dict[Tensor, str]:
    """Return what weights make on a chain where no module does (functions with their weights in a list), by name.

    The last is left out: what it makes is the network's output. Weights of modules that are called are used elsewhere
    by something else, such as the backward pass of a gradient penalty.
    """
    called = {call.module for calls in places.returned.values() for call in calls}
    found: dict[Tensor, str] = {}
    for node in chain:
        if graph.effects[node] is not Effect.PROJECT:
            continue
        owner = places.owner(node)
        variables = [getattr(graph.nodes[leaf], "variable", None) for leaf in sorted(weights_of(graph, [node]))]
        names = [parameters[id(v)] for v in variables if v is not None and v.dim() > 1 and id(v) in parameters]
        holders = {name.rpartition(".")[0] for name in names[:1]} - {owner.module if owner is not None else ""}
        if names and not holders & called:
            found[node, 0] = names[0].removesuffix(".weight")
    if len(found) > 1:
        found.pop(max(found))
    return found


def _series(graph: Graph, places: Places, chain: Iterable[int], parents: set[str]) -> list[Series]:
    found: dict[str, Series] = {}
    for node in chain:
        if _is_loss(graph, node):
            continue
        for call in places.returned.get((node, 0), ()):
            if not call.module:
                continue
            container = call.module in parents
            if not container and not (graph.effects[node] in _WORK or _works(graph, places, node, call)):
                continue
            pattern = DIGITS.sub("#", call.module)
            one = found.setdefault(f"{pattern} {container}", Series(pattern, containers=container))
            one.ends[node, 0] = call
    return list(found.values())


def _is_loss(graph: Graph, node: int) -> bool:
    """Tell whether a node makes one number: a model that returns its loss first ends in it, but no stream does."""
    shape = graph.shape((node, 0))
    return shape is not None and math.prod(shape) == 1


def _works(graph: Graph, places: Places, node: int, call: Call) -> bool:
    """Tell whether a call without modules inside did work: whether its operations right before its output did."""
    for _ in range(8):
        if graph.effects[node] in _WORK:
            return True
        data = [source for source, _, _ in graph.inputs[node] if not graph.parametric[source]]
        data = [source for source in data if call in ancestry(places.owner(source))]
        if not data:
            return False
        node = data[0]
    return False


def _nested(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def _covers(chosen: dict[Tensor, Call], leaves: list[Series]) -> bool:
    """Tell whether most of the layers on the chain lie inside of the blocks."""
    if not chosen:
        return False
    blocks = {call.module for call in chosen.values()}
    layers = [call.module for one in leaves for call in one.ends.values()]
    inside = sum(any(layer.startswith(block + ".") for block in _prefixes(layer) & blocks) for layer in layers)
    return 2 * inside >= len(layers)


def _prefixes(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts))}


def _without_head(graph: Graph, leaves: list[Series]) -> dict[Tensor, Call]:
    """The layers on the chain but the last: what it returns is the network's output, not part of the stream."""
    ends = {tensor: call for one in leaves for tensor, call in one.ends.items()}
    if len(ends) > 1 and len({call.module for call in ends.values()}) > 1:
        ends.pop(max(ends))
    return ends
