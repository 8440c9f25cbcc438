"""What could not be seen of a network's structure, and why."""

from __future__ import annotations

import re
from typing import NamedTuple

from gradscope.probe.structure.graph import Graph
from gradscope.probe.structure.operations import CHECKPOINT, Effect
from gradscope.probe.structure.plan import Plan
from gradscope.probe.structure.residual import LONGEST_ONCE_SPENT
from gradscope.probe.structure.scripted import FUSED
from gradscope.probe.structure.sites import Site
from gradscope.probe.structure.trace import shown_by

_NAMED = 3
"""So many names are listed in a confession."""

_CLEAR = frozenset({CHECKPOINT, FUSED})
"""Functions with a backward of their own whose inside is seen all the same, or told of by itself."""


class Unseen(NamedTuple):
    """What of a forward was not seen, or not looked into.

    Attributes:
        fused: Modules that torch ran as one fused operation.
        scripts: Modules in which TorchScript ran operations as one.
        unused: Where sums are written from which nothing is computed.
    """

    fused: list[str]
    scripts: list[str]
    unused: list[str]


def confessions(
    graph: Graph, gave_up: int, sites: list[Site], plans: list[Plan | None], unseen: Unseen
) -> list[tuple[str, str]]:
    """Return (what, why) for everything about the structure of a step that could not be seen.

    Args:
        graph: The graph.
        gave_up: How many pairs of terms were too far apart to be followed.
        sites: The residual additions and concatenations.
        plans: How the gradients of each site are measured; None where they cannot be.
        unseen: What of the forward was not seen.
    """
    hidden = _of_additions(graph, gave_up, unseen)
    return [*hidden, *_of_sums(graph, unseen.unused), *_of_numbers(graph, sites, plans)]


def _of_additions(graph: Graph, gave_up: int, unseen: Unseen) -> list[tuple[str, str]]:
    """Tell where there may be additions that were not seen."""
    fused, scripts, _ = unseen
    found: list[tuple[str, str]] = []
    opaque = sorted(
        {name for name, effect in zip(graph.names, graph.effects, strict=True) if effect is Effect.OPAQUE} - _CLEAR
    )
    if opaque:
        found.append((
            f"residual additions inside the autograd functions {_list(opaque)}",
            "a function with a backward of its own shows autograd its inputs and outputs only",
        ))  # fmt: skip
    if scripts:
        found.append((
            f"residual additions that TorchScript runs inside {_list(scripts)}",
            "it had already made several operations one, and they could not be run again one by one",
        ))  # fmt: skip
    if fused:
        found.append((
            f"what {_list(fused)} compute{'s' * (len(fused) == 1)} inside, residual additions included",
            "frozen and in evaluation, torch may run it as one fused operation (_transformer_encoder_layer_fwd, "
            "_native_multi_head_attention); no gradient passes it",
        ))  # fmt: skip
    if gave_up:
        found.append((
            f"whether sums are residual where a branch is longer than {LONGEST_ONCE_SPENT} operations",
            f"the search had looked at its share of operations; it gave up {gave_up} times",
        ))  # fmt: skip
    return found


def _of_sums(graph: Graph, unused: list[str]) -> list[tuple[str, str]]:
    """Tell which sums that were seen could not be looked into."""
    found = []
    several = sorted({match[1].lower() for name in graph.names if (match := _SEVERAL.match(name))})
    if several:
        found.append((
            f"whether the sums of {_list([f'torch._foreach_{name}' for name in several])} are residual",
            "one operation adds several pairs of tensors, and autograd does not say which sum goes where",
        ))  # fmt: skip
    if unused:
        found.append((f"whether the sums in {_list(unused)} are residual", "nothing is computed from them"))
    return found


_SEVERAL = re.compile("Foreach(Add(?=.*List)|Sub(?=.*List)|Lerp|Addcmul|Addcdiv)")
"""What torch calls the sums of two lists of tensors."""


def _of_numbers(graph: Graph, sites: list[Site], plans: list[Plan | None]) -> list[tuple[str, str]]:
    """Tell which numbers of the additions that were seen cannot be measured."""
    found: list[tuple[str, str]] = []
    inexact = [site.name for site, plan in zip(sites, plans, strict=True) if plan is not None and plan.inexact]
    if inexact:
        found.append((
            f"the branch's gradient alone at {_list(inexact)}",
            "a tensor of the branch is used elsewhere, the stream needs no gradient there, or one ran without a graph",
        ))  # fmt: skip
    through = [
        site.name
        for site, plan in zip(sites, plans, strict=True)
        if plan is not None and plan.skip is None and not plan.inexact and site.counted
    ]
    if through:
        found.append((
            f"the skip's gradient alone at {_list(through)}",
            "a tensor of the skip is used elsewhere as well",
        ))  # fmt: skip
    unseen = [site.name for site in sites if site.counted and (site.addition is None or not site.addition.readable)]
    if unseen:
        found.append((
            f"how large skip and branch are at {_list(unseen)}",
            "the addition ran where no values can be read (TorchScript, vmap)",
        ))  # fmt: skip
    blind = [site for site, plan in zip(sites, plans, strict=True) if plan is None and site.alive]
    scripted = [site.name for site in blind if shown_by(graph.nodes[site.node]) is not graph.nodes[site.node]]
    if scripted:
        found.append((
            f"gradients through skip and branch at {_list(scripted)}",
            "TorchScript runs the operations of the block as one",
        ))  # fmt: skip
    dead = [site.name for site in sites if not site.alive and site.counted]
    if dead:
        found.append((f"gradients at {_list(dead)}", "the loss is not computed from these sums"))
    return found


def of_repeats(sites: list[str], stations: list[str], functions: list[str]) -> list[tuple[str, str]]:
    """Return (what, why) for additions and stations without a graph whose gradients were not caught.

    Args:
        sites: The names of the additions.
        stations: The names of the stations.
        functions: The autograd functions, other than re-entrant checkpointing, inside of which modules were called.
    """
    why = "re-entrant checkpointing ran them again in another way, or their stream begins outside of it"
    if functions:
        why = f"they ran without a graph inside of {_list(functions)}, which has a backward of its own"
    found = [(f"gradients through skip and branch at {_list(sites)}", why)] if sites else []
    return [*found, *([(f"the gradient along the stream at {_list(stations)}", why)] if stations else [])]


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
