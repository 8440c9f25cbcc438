"""Where along the stream the stations are: what the next block takes in, up to norms and activations."""

from __future__ import annotations

from bisect import bisect_left

from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.normalised import normaliser
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.places import Places, ancestry
from gradscope.probe.structure.sites import Site
from gradscope.probe.watching.calls import Call


def settled(graph: Graph, sites: list[Site], chain: set[int]) -> list[Tensor]:
    """For each sum what the next block takes in: the sum itself, or what a norm or an activation made of it first."""
    found: list[Tensor] = []
    names: list[str] = []
    for i, site in enumerate(sites):
        following = sites[i + 1] if i + 1 < len(sites) else None
        own = (site.node, 0)
        if following is None:
            found.append(_alike(graph, own, names))
            continue
        tensor = following.residual.join if following.residual is not None else own
        path = _path(graph, own, tensor, chain)
        if path is None:
            found.append(own)
        else:
            names = path
            found.append(tensor)
    return found


_SETTLING = frozenset({Effect.HAND_ON, Effect.NORM, Effect.BEND, Effect.SCALE, Effect.REDUCE, Effect.ADD})
"""What may lie between a sum and the output of its block: no work on the stream."""
_MAX_SETTLING = 16
"""Operations between the two, at most."""


def _path(graph: Graph, start: Tensor, end: Tensor, chain: set[int]) -> list[str] | None:
    """Return the dominators between a sum and what the next block takes in, None where real work lies in between."""
    if start == end:
        return []
    if not (start[0] < end[0] and end[0] in chain):
        return None
    between = (
        [node for node in sorted(chain) if start[0] < node <= end[0]] if end[0] - start[0] < 4 * _MAX_SETTLING else []
    )
    if not between or any(graph.effects[node] not in _SETTLING for node in between):
        return None
    return [graph.names[node] for node in between]


def closes_block(graph: Graph, sum_: int, end: Tensor, blocks: dict[Tensor, Call], chain: list[int]) -> Tensor:
    """Return the block's output for what its sum settles as, where that is the same tensor in another shape."""
    place = bisect_left(chain, end[0])
    if chain[place : place + 1] != [end[0]]:
        return end
    for node in chain[place + 1 : place + _MAX_SETTLING]:
        if graph.effects[node] is not Effect.HAND_ON:
            break
        if (node, 0) in blocks:
            return (node, 0)
    for before in range(place, max(place - _MAX_SETTLING, 0), -1):
        node = chain[before - 1]
        if graph.effects[chain[before]] is not Effect.HAND_ON or node <= sum_:
            break
        if (node, 0) in blocks:
            return (node, 0)
    return end


def _alike(graph: Graph, own: Tensor, names: list[str]) -> Tensor:
    """Do with the last sum what was done with the one before it."""
    if not names:
        return own
    norm = normaliser(graph, own)
    tensor = own
    for name in names:
        readers = graph.readers(tensor)
        following = next((node for node, _ in readers if graph.names[node] == name), None)
        if following is None:
            return own if norm is None else (norm, 0)
        tensor = (following, 0)
    return tensor


def start_of(
    graph: Graph, places: Places, sites: list[Site], blocks: dict[Tensor, Call], chain: list[int]
) -> Tensor | None:
    """What the first block takes in: the output of the embedding or the stem; None where that is the raw input."""
    join = sites[0].residual.join if sites and sites[0].residual is not None else None
    if blocks:
        first = min(blocks)
        inside = [node for node in chain if node <= first[0] and blocks[first] in ancestry(places.owner(node))]
        before = [node for node in chain if inside and node < inside[0]]
        if before and (join is None or before[-1] < join[0]):
            return (before[-1], 0) if graph.gradient_of((before[-1], 0)) is not None else None
    if join is None or graph.gradient_of(join) is None:
        return None
    return join
