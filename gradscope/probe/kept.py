"""What a model keeps in plain Python between two forwards: counters, caches, memory banks, generators of its own.

It is found from the modules' attributes on, through lists, dicts, sets, deques, arrays, closures of hooks and objects
of the user's classes. Objects of Python's and torch's own classes are left alone (a logger, a process group), modules
and optimizers apart, and so is what is inside of a collection of more than `snapshots.MOST_ITEMS`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import nn

from gradscope.probe.garbage import undisturbed
from gradscope.probe.listing import named_modules
from gradscope.probe.snapshots import Restore, is_without_values, of_slots, of_tensor, refill, snapshot

_PLAIN = frozenset((int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size, range))
_TABLES = ("_parameters", "_buffers", "_modules")
_EMPTY: dict[str, Any] = {}
HOOKS = frozenset(vars(nn.Module())) - {"training", *_TABLES}
"""What torch keeps in every module beside its contents."""


class KeptGraph(NamedTuple):
    """A tensor that is kept together with the graph it was computed by.

    Attributes:
        place: The attribute it is found from, "encoder.cache" for instance.
        owner: The id of its module.
        tensor: The tensor.
    """

    place: str
    owner: int
    tensor: torch.Tensor


class Kept:
    """A snapshot of what a model keeps in plain Python, to be put back.

    Which parameters, buffers and modules it has is part of it; the values of its parameters and buffers are not.

    Args:
        model: The model.
        hooks: Look also at what the hooks of its modules can reach.

    Example:
        >>> model = nn.ReLU()
        >>> model.seen = []
        >>> before = Kept(model)
        >>> model.seen.append(1)
        >>> before.restore()
        >>> model.seen
        []
    """

    @undisturbed()
    def __init__(self, model: nn.Module, *, hooks: bool = False) -> None:
        self.graphs: list[KeptGraph] = []
        self._modules: list[tuple[int, dict[str, Any], dict[str, Any], tuple[dict[str, Any] | None, ...]]] = []
        """The id of a module, its attributes, and what is in these and in its tables."""
        self._entries: list[tuple[int, Restore]] = []
        modules = named_modules(model)
        self._seen: dict[int, Any] = {id(module): module for _, module in modules}
        self._seen.update((id(p), p) for _, module in modules for p in module._parameters.values() if p is not None)
        self._buffers = {id(buffer) for _, module in modules for buffer in module._buffers.values()}
        self._waiting: list[tuple[str, int, Any]] = []
        for name, module in modules:
            self._note_module(name, module, hooks)
            while self._waiting:
                self._look_at(*self._waiting.pop())
        del self._waiting

    def restore(self, owners: frozenset[int] | None = None) -> None:
        """Put it back; where owners are given what was found from those modules only."""
        for owner, attributes, content, tables in self._modules:
            if owners is None or owner in owners:
                refill(attributes, content, HOOKS)
                for key, table in zip(_TABLES, tables, strict=True):
                    if table is not None:
                        refill(attributes[key], table)
        with torch.no_grad():
            for owner, put_back in self._entries:
                if owners is None or owner in owners:
                    with suppress(Exception):  # a class of the user's may refuse: the rest is put back all the same
                        put_back()

    def reached_from(self, loss: torch.Tensor) -> list[KeptGraph]:
        """Return the kept graphs that a loss was computed with."""
        nodes = [graph.tensor.grad_fn for graph in self.graphs]
        waiting = [loss.grad_fn] if nodes else []
        seen = set(waiting)
        while waiting:
            node = waiting.pop()
            following = {source for source, _ in node.next_functions if source is not None} - seen if node else set()
            seen |= following
            waiting += following
        return [graph for graph, node in zip(self.graphs, nodes, strict=True) if node in seen]

    def _note_module(self, name: str, module: nn.Module, hooks: bool) -> None:
        owner, attributes = id(module), vars(module)
        content = {key: value for key, value in attributes.items() if key not in HOOKS}
        # An empty dict stands for all that are empty: a model of thousands of modules is looked at in every step.
        tables = tuple([_copy(content.get(key)) for key in _TABLES])
        self._modules.append((owner, attributes, content, tables))
        prefix = f"{name}." if name else ""
        slots, inside = of_slots(module)
        self._entries += [(owner, each) for each in slots]
        self._waiting += [(prefix + "slots", owner, item) for item in inside]
        for key, value in content.items():
            if type(value) not in _PLAIN and key not in _TABLES:
                self._waiting.append((prefix + key, owner, value))
        for key, buffer in module._buffers.items():
            self._waiting.append((prefix + key, owner, buffer))
        for key in HOOKS if hooks else ():
            if attributes.get(key):
                self._waiting.append((prefix + key, owner, attributes[key]))

    def _look_at(self, place: str, owner: int, value: Any) -> None:
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._note_tensor(place, owner, value)
            return
        put_back, inside = snapshot(value)
        self._entries += [(owner, each) for each in put_back]
        self._waiting += [(place, owner, item) for item in inside if type(item) not in _PLAIN]

    def _note_tensor(self, place: str, owner: int, tensor: torch.Tensor) -> None:
        if tensor.grad_fn is not None:
            self.graphs.append(KeptGraph(place, owner, tensor))
        elif not is_without_values(tensor):
            self._entries.append((owner, of_tensor(tensor, with_values=id(tensor) not in self._buffers)))


def _copy(table: Any) -> dict[str, Any] | None:
    """Copy a table of a module; None where torch keeps it elsewhere (TorchScript)."""
    if type(table) is not dict:
        return None
    return table.copy() if table else _EMPTY
