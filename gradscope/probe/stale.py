"""Models that keep tensors with their graph from one step to the next (a cache, a memory, a state without `detach`).

The next step's loss is then computed through the graph of a step that has been gone back through already, and its
backward pass raises. Steps go on all the same, once what is kept was detached or put back to what it was at first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.probe.kept import Kept, KeptGraph
from gradscope.probe.restore import Moment
from gradscope.probe.watching.tables import Tables


class StaleGraphError(Exception):
    """A backward pass that raised where it came to the graph of an earlier step.

    Attributes:
        graphs: What kept it.
        told: What to tell the user where it cannot be helped.
    """

    def __init__(self, graphs: list[KeptGraph], told: GradscopeError) -> None:
        super().__init__(str(told))
        self.graphs = graphs
        self.told = told


class Renewal:
    """What of a model has to begin every step without the graph of the step before.

    A state that the forward replaces (a memory, a hidden state) goes on, detached. What it uses again as it is (a
    cache) goes back to what it was when the model was built, with all that its module keeps.

    Args:
        model: The model before its first step.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._fresh = Kept(model)
        self._owners: frozenset[int] = frozenset()
        self._carried: frozenset[str] = frozenset()

    def renew(self) -> None:
        """Do so, before a step."""
        if self._owners:
            self._fresh.restore(self._owners)
        for graph in Kept(self._model).graphs if self._carried else ():
            if graph.place in self._carried:
                graph.tensor.detach_()

    def repeat(self, error: StaleGraphError, moment: Moment, tables: Tables, step: int) -> bool:
        """Make ready for taking a step again whose backward pass came to an old graph.

        Returns:
            Whether it can be taken: not where the model was built with that graph, or it is kept elsewhere as well.
        """
        still = {id(graph.tensor) for graph in Kept(self._model).graphs}
        reused = [graph for graph in error.graphs if id(graph.tensor) in still or graph.tensor._is_view()]
        carried = [graph for graph in error.graphs if graph not in reused]
        owners, places = frozenset(graph.owner for graph in reused), frozenset(graph.place for graph in carried)
        built = {id(graph.tensor) for graph in self._fresh.graphs}
        known = owners <= self._owners and places <= self._carried
        if known or any(id(graph.tensor) in built for graph in error.graphs):
            _tell(tables, step, error.graphs, "no further step was taken")
            return False
        self._owners |= owners
        self._carried |= places
        _tell(tables, step, reused, "every step began with it as it was built")
        _tell(tables, step, carried, "every step began with it detached")
        moment.go()
        self.renew()
        return True

    @contextmanager
    def anew(self) -> Iterator[None]:
        """Let every module that keeps a graph begin anew in this, and go on with what it has at the end."""
        now = Kept(self._model)
        owners = frozenset(graph.owner for graph in now.graphs)
        self._fresh.restore(owners)
        try:
            yield
        finally:
            now.restore(owners)


def _tell(tables: Tables, step: int, graphs: list[KeptGraph], done: str) -> None:
    """Write an event for each place, and one confession."""
    places = list(dict.fromkeys(graph.place for graph in graphs))
    for place in places:
        tables.add("events", step=step, kind="stale", module=place.rpartition(".")[0], call=0, detail=place)
    if places:
        tables.confess(
            f"gradients through what is kept in {', '.join(places)} from step to step",
            f"it is kept with the graph of its step, which breaks the next backward pass; {done}",
        )


def stale_graphs(moment: Moment, loss: torch.Tensor) -> list[KeptGraph]:
    """Return what a model kept since before a moment that a loss was computed with."""
    return moment.carried.kept.reached_from(loss)
