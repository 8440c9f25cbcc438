"""Which residual additions carry a state through time, instead of a stream through depth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

from gradscope.probe.structure.additions import Addition, Place
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.parts import overlap
from gradscope.probe.structure.sites import Site
from gradscope.probe.structure.trace import Trace


def mark_recurrent(graph: Graph, sites: list[Site], additions: Iterable[Addition]) -> None:
    """Mark the sites of loops over time; they are no longer counted.

    A block that is applied again and again (ALBERT) is depth. It is time where each step reads another part of a
    sequence, where a gate mixes the old state with the new one (a GRU written by hand), or where the state is detached
    from the step before.

    Args:
        graph: The graph.
        sites: The sites.
        additions: All additions of the forward.
    """
    executed = Counter(addition.place for addition in additions)
    loops: dict[Place, list[Site]] = defaultdict(list)
    for site in sites:
        if site.addition is not None and site.line is not None and site.kind != "concat":
            loops[site.addition.place].append(site)
    for place, loop in loops.items():
        if executed[place] > 1 and (_gated(loop) or _reads_on(loop) or _detached(graph, loop)):
            for site in loop:
                site.recurrent = True
                site.counted = False


def _gated(loop: list[Site]) -> bool:
    """Tell whether the same weights mix an old state with a new one again and again.

    A helper that a block calls for each of its branches is the same line too, but with other weights.
    """
    gated = [site for site in loop if site.kind == "gated" and site.residual is not None and site.residual.link.gates]
    return len(gated) == len(loop) > 1 and len({frozenset(site.branches) for site in loop}) == 1


def _reads_on(loop: list[Site]) -> bool:
    """Tell whether steps, one after the other, read different parts of one tensor."""
    regions = [site.residual.region for site in loop if site.residual is not None]
    if len(regions) < len(loop):
        return False
    return any(
        source in first.parts_read and not overlap(part, first.parts_read[source])
        for first, second in pairwise(regions)
        for source, part in second.parts_read.items()
    )


def _detached(graph: Graph, loop: list[Site]) -> bool:
    """Tell whether a step takes its state cut off from the graph."""
    for site in loop:
        trace = graph.nodes[site.residual.join[0]] if site.residual is not None else None
        while isinstance(trace, Trace):
            if trace.name == "Detach":
                return True
            first = trace.inputs[0] if trace.inputs else None
            trace = first[0] if isinstance(first, tuple) else first
    return False
