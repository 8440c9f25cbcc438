"""A residual addition described as a person would: its name, its branch, where it is written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gradscope.probe.structure.additions import Addition, AdditionRecorder, Key
from gradscope.probe.structure.blocks import DIGITS
from gradscope.probe.structure.chain import FactorOf
from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.kinds import branch_scaling, kind_of, skip_scaling
from gradscope.probe.structure.lineage import weights_of
from gradscope.probe.structure.operations import Effect
from gradscope.probe.structure.own import OwnPart
from gradscope.probe.structure.placement import placement_of, reads_normalised
from gradscope.probe.structure.places import Places, ancestry, child_below
from gradscope.probe.structure.residual import Residual
from gradscope.probe.structure.trace import Trace
from gradscope.probe.watching.calls import Call


@dataclass(slots=True)
class Site:
    """One residual addition (or concatenation) of one forward; the columns of the record's `sites` table.

    Attributes:
        name: Such as "layers.3 + self_attn".
        call: The call that contains the addition and its branch, None outside of the model.
        op: The function that was called, "add_" for instance, or the graph's name for it where it was not seen.
        kind: identity, scaled, gated, projection or concat.
        counted: Whether it counts as a residual addition.
        placement: pre, post, sandwich, output or none.
        branches: The modules on the branch.
        skips: The modules on the skip.
        skip_scale: The constant the skip is multiplied by; None where it is learnt, input-dependent or unknown.
        branch_scale: The same for the branch.
        group: Sites of one parallel group share the number.
        recurrent: It adds to a state that is carried from one time step to the next.
        file: The source file.
        line: The line in it.
        key: What the addition is called on other steps; None where it was not seen to run.
        node: Its node in the graph.
        residual: What was found in the graph.
        addition: What was seen when it ran.
        positions: Which terms of the addition are the skip and the branch.
        depth: The row of its station, None where it is not on the stream.
        alive: Whether a loss is computed from it.
    """

    name: str
    call: Call | None
    op: str
    kind: str
    counted: bool
    placement: str
    branches: tuple[str, ...]
    skips: tuple[str, ...]
    skip_scale: float | None
    branch_scale: float | None
    group: int
    recurrent: bool
    file: str | None
    line: int | None
    key: Key | None
    node: int
    residual: Residual | None
    addition: Addition | None
    positions: tuple[int, int]
    depth: int | None = None
    alive: bool = True

    def forward_handles(self) -> tuple[int | None, int | None, int | None]:
        """Return the handles of the norms of skip, branch and sum, as they were added."""
        if self.addition is None:
            return None, None, None
        terms = dict(enumerate(self.addition.terms))
        return terms.get(self.positions[0]), terms.get(self.positions[1]), self.addition.out

    def forget(self) -> None:
        """Let go of the graph."""
        self.residual = None

    @property
    def module(self) -> str:
        """The module whose addition it is."""
        return "" if self.call is None else self.call.module


_WORK = frozenset({Effect.PROJECT, Effect.ATTEND, Effect.RECUR, Effect.FOURIER, Effect.OPAQUE, Effect.POOL})


def describe(
    graph: Graph,
    places: Places,
    found: dict[int, list[Residual]],
    recorder: AdditionRecorder,
    factor_of: FactorOf,
    parameters: Mapping[int, str],
) -> list[Site]:
    """Describe the residual additions of a graph, in execution order.

    Args:
        graph: The graph.
        places: Who ran what.
        found: The residual additions, by node.
        recorder: What the forward saw.
        factor_of: Returns what a product multiplied by.
        parameters: The names of the model's parameters by the parameter's id.
    """
    sites: list[Site] = []
    groups = _groups(found)
    for node in sorted(found):
        for residual in found[node]:
            trace = graph.nodes[node]
            key = trace if isinstance(trace, Trace) else int(graph.sequences[node])
            addition = recorder.additions.get(key)
            innermost = addition.call if addition is not None else places.owner(node)
            part = OwnPart(residual, found)
            own = part.working
            container = _container(places, own, innermost)
            branches = _modules(graph, places, own, container, innermost, frozenset(part.blocks))
            weights = [] if branches else _weights(graph, own, parameters)
            kind = "concat" if residual.concatenates else kind_of(graph, residual, factor_of)
            sites.append(
                Site(
                    name=_name(container, branches or tuple(map(_without_role, weights))),
                    call=container,
                    op=addition.op if addition is not None else graph.names[node].lower(),
                    kind=kind,
                    counted=kind != "concat" and not residual.recurrent,
                    placement=placement_of(graph, residual, part),
                    branches=branches or _owners(weights, container),
                    skips=_modules(graph, places, residual.link.nodes, container, None)
                    if residual.link.projection
                    else (),
                    skip_scale=skip_scaling(residual).scale,
                    branch_scale=branch_scaling(graph, residual, factor_of).scale,
                    group=groups[node],
                    recurrent=residual.recurrent,
                    file=addition.file if addition is not None else None,
                    line=addition.line if addition is not None else None,
                    key=addition.key if addition is not None else None,
                    node=node,
                    residual=residual,
                    addition=addition,
                    positions=(residual.skip.position, residual.branch.position),
                )
            )
    _settle_placements(graph, sites)
    _tell_apart(sites)
    return sites


def _settle_placements(graph: Graph, sites: list[Site]) -> None:
    """Take a norm for what it is in the other blocks of a series.

    Behind the last block of a stage, where the others have none behind them, it belongs to the layer that leads on to
    the next stage (ConvNeXt) or out of the network (OLMo 2); of two blocks the one with another behind it shows which.
    In front of a branch and its shortcut with a layer it belongs to the branch, where it does in the others.
    """
    series: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        if site.kind != "concat":
            series[DIGITS.sub("#", site.name)].append(site)
    for alike in series.values():
        counts = Counter(site.placement for site in alike)
        usual = max(("none", "output"), key=counts.__getitem__)
        if counts[usual] >= counts["post"] > 0:
            for site in alike:
                site.placement = usual if site.placement == "post" else site.placement
        if counts["pre"] + counts["sandwich"]:
            for site in alike:
                if site.placement in _IN_FRONT and site.residual is not None and reads_normalised(graph, site.residual):
                    site.placement = _IN_FRONT[site.placement]


_IN_FRONT = {"none": "pre", "output": "sandwich"}
"""What a block is called that has a norm in front of its branch as well."""


def _groups(found: dict[int, list[Residual]]) -> dict[int, int]:
    """Number parallel groups: additions of several branches of one tensor to the same stream."""
    first: dict[int, int] = {}
    for node in sorted(found):
        residual = found[node][0]
        before = [sum_ for sum_ in residual.link.sums if found[sum_][0].join == residual.join]
        first[node] = first[before[-1]] if before else node
    numbers = {node: i for i, node in enumerate(sorted(set(first.values())))}
    return {node: numbers[start] for node, start in first.items()}


def _container(places: Places, branch: list[int], innermost: Call | None) -> Call | None:
    """The innermost call that contains the addition and all of its branch."""
    counts: Counter[Call | None] = Counter()
    for node in branch:
        counts.update(ancestry(places.owner(node)))
    total = len(branch)
    return next((call for call in ancestry(innermost) if counts[call] >= total), innermost if not total else None)


def _modules(
    graph: Graph,
    places: Places,
    nodes: Iterable[int],
    container: Call | None,
    adder: Call | None,
    blocks: frozenset[int] = frozenset(),
) -> tuple[str, ...]:
    """The modules directly inside the container that some nodes ran in: those that work, else all of them.

    So does a residual block of its own, which is one node here: its sum.
    """
    working: dict[str, None] = {}
    others: dict[str, None] = {}
    last = child_below(adder, container)
    for node in sorted(nodes):
        call = child_below(places.owner(node), container)
        if call is not None:
            worked = (graph.effects[node] in _WORK and call is not last) or node in blocks
            (working if worked else others)[call.module] = None
    return tuple(working or others)


def _weights(graph: Graph, nodes: list[int], parameters: Mapping[int, str]) -> list[str]:
    """The parameters that a branch works with, where no module of its own was called (functions, TorchScript)."""
    working = [node for node in nodes if graph.effects[node] in _WORK]
    leaves = [leaf for node in working for leaf in sorted(weights_of(graph, [node]))]
    variables = [getattr(graph.nodes[leaf], "variable", None) for leaf in leaves]
    return list(dict.fromkeys(parameters[id(weight)] for weight in variables if id(weight) in parameters))


def _without_role(parameter: str) -> str:
    return parameter.removesuffix(".weight").removesuffix(".bias")


def _owners(weights: list[str], container: Call | None) -> tuple[str, ...]:
    """The modules inside the container that hold some parameters."""
    inside = "" if container is None or not container.module else container.module + "."
    owners = dict.fromkeys(weight.rpartition(".")[0] for weight in weights)
    return tuple(owner for owner in owners if owner and owner.startswith(inside))


def _name(container: Call | None, branches: tuple[str, ...]) -> str:
    module = "" if container is None else container.module
    prefix = module + "." if module else ""
    short = [name.removeprefix(prefix) for name in branches]
    ends = dict.fromkeys((short[0], short[-1])) if short else ("inline branch",)
    branch = " … ".join(ends)
    return f"{module} + {branch}" if module else f"+ {branch}"


def _tell_apart(sites: list[Site]) -> None:
    """Number sites of one call that would have the same name."""
    seen: Counter[tuple[str, Call | None]] = Counter()
    for site in sites:
        seen[site.name, site.call] += 1
        if seen[site.name, site.call] > 1:
            site.name = f"{site.name} #{seen[site.name, site.call]}"
