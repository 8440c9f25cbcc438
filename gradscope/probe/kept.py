"""What a model keeps in plain Python between two forwards: counters, caches, memory banks, generators of its own.

It is found from the modules' attributes on, through lists, dicts, sets, queues, arrays, closures of hooks and objects
of the user's classes. Objects of Python's and torch's own classes are left alone (a logger, an optimizer, a process
group), and so is what is inside of a collection of more than `snapshots.MOST_ITEMS`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from gradscope.probe.listing import named_modules
from gradscope.probe.snapshots import Restore, is_without_values, of_tensor, refill, snapshot

_PLAIN = frozenset((int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size, range))
_TABLES = ("_parameters", "_buffers", "_modules")
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


class _Attributes(NamedTuple):
    """The attributes of one module, and what is in its tables of parameters, buffers and modules."""

    attributes: dict[str, Any]
    content: dict[str, Any]
    tables: list[tuple[dict[str, Any], dict[str, Any]]]

    def restore(self) -> None:
        refill(self.attributes, self.content, HOOKS)
        for table, content in self.tables:
            refill(table, content)


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

    def __init__(self, model: nn.Module, *, hooks: bool = False) -> None:
        self.graphs: list[KeptGraph] = []
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
        with torch.no_grad():
            for owner, put_back in self._entries:
                if owners is None or owner in owners:
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
        tables = [(table, table.copy()) for key in _TABLES if type(table := content.get(key)) is dict]
        self._entries.append((owner, _Attributes(attributes, content, tables).restore))
        prefix = f"{name}." if name else ""
        looked_at = [item for item in content.items() if item[0] not in _TABLES]
        looked_at += module._buffers.items()
        looked_at += ((key, attributes[key]) for key in HOOKS if attributes.get(key)) if hooks else ()
        for key, value in looked_at:
            if type(value) not in _PLAIN:
                self._waiting.append((prefix + key, owner, value))

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
