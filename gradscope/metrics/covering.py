"""Many parameters, named by few modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

from gradscope.metrics.facts import Facts


def covering_modules(facts: Facts, names: Iterable[str]) -> list[str]:
    """Return the highest modules of which every trainable parameter is among the named ones, in the model's order.

    A parameter whose own module is not among them is named itself.
    """
    chosen = set(names)
    named = [p for p in facts.trainable if p.name in chosen]
    total = Counter(module for p in facts.trainable for module in _upwards(p.module))
    inside = Counter(module for p in named for module in _upwards(p.module))
    found: dict[str, None] = {}
    for parameter in named:
        whole = takewhile(lambda module: total[module] == inside[module], _upwards(parameter.module))
        found[[parameter.name, *whole][-1]] = None
    return list(found)


def _upwards(module: str) -> list[str]:
    """Return a module and those around it, the model ("") last."""
    around = [module]
    while around[-1]:
        around.append(around[-1].rpartition(".")[0])
    return around
