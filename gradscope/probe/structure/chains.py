"""Which operations the stream of a network runs through: chains of dominators, or the sums that add to one another."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from gradscope.probe.structure.dominance import Dominators
from gradscope.probe.structure.graph import Graph, Tensor
from gradscope.probe.structure.lineage import settled_from
from gradscope.probe.structure.sites import Site
from gradscope.probe.watching.calls import Call

_MAX_STREAMS = 4
"""Streams that feed one another (encoders of a decoder); more are not looked for."""


def along_skips(graph: Graph, sites: dict[int, Site]) -> list[int]:
    """The longest line of sums that add to one another, with the joins.

    It is the stream where something is handed past it to every block, such as the first block's values: gradients have
    a way round each sum then.
    """
    before: dict[int, int | None] = {}
    length: dict[int, int] = {}
    for number, site in sorted(sites.items()):
        ends = settled_from(graph, site.residual.join) if site.residual is not None else ()
        last = before[number] = next((end for end in ends if end in length), None)
        length[number] = 1 + (length[last] if last is not None else 0)
    node = max(length, key=length.__getitem__, default=None)
    line: set[int] = set()
    while node is not None:
        line.update(ends_of(sites[node]))
        node = before[node]
    return sorted(line)


def longest_line(graph: Graph, dominators: Dominators, ends: set[int]) -> list[int]:
    """The longest line of some operations of which each is computed from the one before it.

    It is the stream where gradients have a way round each block: the long skips of a U-Net, a state with an input that
    is fed to each step, the two halves of a coupling.
    """
    length = [0] * len(graph.nodes)
    before = [-1] * len(graph.nodes)
    for node, inputs in enumerate(graph.inputs):
        if not dominators.reaches(node):
            continue
        for source, _, _ in inputs:
            if length[source] > length[node]:
                length[node] = length[source]
                before[node] = source if source in ends else before[source]
        length[node] += node in ends
    node = max(range(len(graph.nodes)), key=length.__getitem__, default=-1)
    node = node if node in ends else before[node]
    line = []
    while node >= 0:
        line.append(node)
        node = before[node]
    return line[::-1]


def handed_on(graph: Graph, dominators: Dominators, blocks: dict[Tensor, Call]) -> set[int]:
    """The outputs of blocks, without those of a loop over time: a module that is called again, each output of use.

    Calls that have nothing to do with each other (a critic that is shown two batches) are no loop.
    """
    calls: dict[str, list[int]] = defaultdict(list)
    for (node, _), call in sorted(blocks.items(), key=lambda item: item[0]):
        calls[call.module].append(node)
    return {
        node
        for nodes in calls.values()
        if all(dominators.passes(one, other) or not graph.leads_to(one, other) for one, other in pairwise(nodes))
        for node in nodes
    }


def outermost(sites: dict[int, Site]) -> set[int]:
    """The sums that lie on no other block's branch, of a parallel group the last."""
    inner = {node for site in sites.values() if site.residual is not None for node in site.residual.region.residuals}
    return set({site.group: node for node, site in sorted(sites.items())}.values()) - inner


def ends_of(site: Site) -> tuple[int, ...]:
    """Return the sum of a site, and before it the tensor that its block took in."""
    return (site.node,) if site.residual is None else (site.residual.join[0], site.node)


def streams_of(graph: Graph, dominators: Dominators, sites: dict[int, Site]) -> list[list[int]]:
    """Return chains of dominators in the order in which they run. `sites` are those counted, by their sum."""
    sums = set(sites)
    sources = [
        node
        for node in range(len(graph.nodes))
        if dominators.reaches(node)
        and not graph.parametric[node]
        and node not in graph.tokens
        and all(graph.parametric[source] or graph.is_raw(source) for source, _, _ in graph.inputs[node])
    ]
    chains: list[list[int]] = []
    used: set[int] = set()
    for _ in range(_MAX_STREAMS):
        if not sources:
            break
        chain = dominators.chain(max(sources, key=_rank(graph, dominators, sums, used)))
        fresh = [node for node in chain if node not in used]
        if chains and not (sums & set(fresh) and _feeds(fresh, chain, chains[0])):
            break
        if not chains or sums & set(fresh) - _on_branches(chains[0], sites):
            chains.append(chain)
        used.update(chain)
    return _one_after_another(chains, sums)


def _on_branches(chain: list[int], sites: dict[int, Site]) -> set[int]:
    """What lies on the branches of a stream's blocks: a sum that a position enters there is no stream of its own."""
    residuals = [site.residual for node in chain if (site := sites.get(node)) is not None]
    return set().union(*(residual.region.members for residual in residuals if residual is not None))


def _one_after_another(chains: list[list[int]], sums: set[int]) -> list[list[int]]:
    """Order streams by their first sum; what two share belongs to the later one: the decoder's end is no encoder's."""
    chains = sorted(chains, key=lambda chain: min((node for node in chain if node in sums), default=0))
    later: set[int] = set()
    streams: list[list[int]] = []
    for chain in reversed(chains):
        streams.insert(0, sorted(node for node in chain if node not in later))
        later.update(chain)
    return streams


def _rank(graph: Graph, dominators: Dominators, sums: set[int], used: set[int]) -> Any:
    count = [0] * (len(graph.nodes) + 1)
    for node in range(len(graph.nodes) - 1, -1, -1):
        if dominators.reaches(node):
            count[node] = count[dominators.parent[node]] + (node in sums and node not in used)
    return lambda node: (count[node], not graph.is_raw(node), dominators.depth(node), -node)


def _feeds(fresh: list[int], chain: list[int], main: list[int]) -> bool:
    """Tell whether a stream flows into the main one before that ends, instead of standing beside it up to the loss."""
    meeting = chain[len(fresh)] if len(fresh) < len(chain) else None
    return meeting is not None and meeting in main and any(node > meeting for node in main)
