"""Every call of every module of a model, in the order in which they end, with its place in the autograd graph."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import nn

from gradscope.probe.listing import named_modules
from gradscope.probe.watching.calling import activate, deactivate
from gradscope.probe.watching.replay import Replay
from gradscope.probe.watching.tensors import (
    Edge,
    edge_of,
    inside_transform,
    listed,
    num_elements,
    shapes_in,
)

_REINDEX_LIMIT = 16
"""How often per step the module tree is listed anew because an unknown module was called; a model that makes modules
in its forward would otherwise cost a listing a call."""


class Listener(NamedTuple):
    """Functions told about every recorded call. They run with torch functions disabled and must return None.

    `entered(call, module)` runs before the forward, `left(call, module, args, output)` after it. Under re-entrant
    checkpointing the forward runs without a graph; `replayed(call, module, output)` tells of its repetition with one.
    """

    entered: Callable[[Call, nn.Module], None] | None = None
    left: Callable[[Call, nn.Module, tuple[Any, ...], Any], None] | None = None
    replayed: Callable[[Call, nn.Module, Any], None] | None = None
    dropped: Callable[[Call], None] | None = None
    """Told of a call that raised."""


class Call:
    """One call of one module.

    Attributes:
        row: Its row in the table of calls, in the order in which calls end; -1 while it is open.
        module: The module's (first) name in the model, "" for the model itself.
        call: Which call of that module in this step, from 0.
        parent: The call it ran inside of, None for an outermost one.
        outputs: The gradient edges of the tensors that came out (those that have one), in order; they hold the graph
            until `CallTracker.release`.
        shape: Shape of the main output (the first floating tensor, else the first tensor), None without tensors.
        dtype: Its dtype, None without tensors.
    """

    __slots__ = ("call", "dtype", "module", "outputs", "parent", "row", "shape")

    def __init__(self, module: str, call: int, parent: Call | None) -> None:
        self.row = -1
        self.module = module
        self.call = call
        self.parent = parent
        self.outputs: tuple[Edge, ...] = ()
        self.shape: tuple[int, ...] | None = None
        self.dtype: torch.dtype | None = None

    @property
    def parent_row(self) -> int | None:
        """The row of the call this one ran inside of."""
        return None if self.parent is None else self.parent.row

    def __repr__(self) -> str:
        return f"Call({self.module!r}, {self.call}, row={self.row})"


class CallTracker:
    """Record the calls of a model's modules while active.

    Calls made during a backward pass (recomputation under checkpointing) are not recorded again, nor calls from other
    threads, nor calls of modules that do not belong to the model.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> with CallTracker(model) as tracker:
        ...     _ = model(torch.zeros(1, 2))
        >>> [call.module for call in tracker.calls]
        ['0', '1', '']
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.only_with_gradients = False
        """Whether outermost calls without gradients (validation between two steps) are passed over."""
        self.calls: list[Call] = []
        """Calls that ended, in order; `calls[i].row == i`."""
        self.stack: list[Call] = []
        """Calls that are open now, outermost first."""
        self.listeners: list[Listener] = []
        self.on_outermost: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None] | None = None
        """Told of every outermost call, with what it is given, before it runs."""
        self.given = ""
        """The shapes that the first outermost call was given."""
        self.recomputed: set[str] = set()
        """Modules called again during a backward pass."""
        self.fused: list[str] = []
        """Modules that were left to run as one fused operation of torch, in which nothing could be seen."""
        self.names: dict[int, str] = {}
        self._known: list[nn.Module] = []
        self._foreign: dict[int, nn.Module] = {}
        self._counts: dict[str, int] = {}
        self._reindexed = 0
        self._replay = Replay()
        self._thread = threading.get_ident()
        self._index()

    def __enter__(self) -> CallTracker:
        self._thread = threading.get_ident()
        activate(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deactivate(self)
        self.stack.clear()

    def release(self) -> None:
        """Let go of the graph; what the calls were stays known."""
        for call in self.calls:
            call.outputs = ()

    def reset(self) -> None:
        """Forget the calls of the last step; the names stay."""
        self.calls = []
        self.stack.clear()
        self.recomputed = set()
        self.fused = []
        self._counts = {}
        self._reindexed = 0
        self._replay = Replay()
        self._foreign = {}

    def name_of(self, module: nn.Module) -> str | None:
        """Return the module's first name in the model, None for a module that does not belong to it."""
        name = self.names.get(id(module))
        if name is None and id(module) not in self._foreign:
            name = self._name_of_stranger(module)
        return name

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Open a call, None where it is not to be recorded."""
        name = self.names.get(id(module)) or self.name_of(module)
        if name is None:
            return None
        if torch._C._current_graph_task_id() != -1:
            self.recomputed.add(name)
            return self._replay.open(name, args, kwargs)
        if threading.get_ident() != self._thread:
            return None
        learns, parent = torch.is_grad_enabled(), self.stack[-1] if self.stack else None
        if parent is None and self.only_with_gradients and not learns:
            return None
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        call = Call(name, count, parent)
        if parent is None:
            self._begin(module, args, kwargs)
        if not learns:
            self._replay.expect(call, args, kwargs)
        for listener in self.listeners:
            if listener.entered is not None:
                listener.entered(call, module)
        self.stack.append(call)
        return call

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.given = self.given or shapes_in((args, kwargs))
        if self.on_outermost is not None:
            self.on_outermost(module, args, kwargs)

    def leave(self, call: Call, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Close a call that returned."""
        if call.row != -1:
            self._replayed(call, module, output)
            return
        self._unwind(call)
        call.row = len(self.calls)
        self.calls.append(call)
        found = listed(output)
        if found:
            main = found[0]
            if not main.is_floating_point():
                main = next((tensor for tensor in found if tensor.is_floating_point() or tensor.is_complex()), main)
            call.shape = (num_elements(main),) if main.is_nested else main.shape  # a nested one has no single shape
            call.dtype = main.dtype
        if torch.is_grad_enabled() and not inside_transform():
            call.outputs = tuple([edge_of(tensor) for tensor in found if tensor.requires_grad])
        for listener in tuple(self.listeners):  # a listener may take itself or others off
            if listener.left is not None:
                listener.left(call, module, args, output)

    def leave_unseen(self, call: Call) -> None:
        """Note that a call ran without our modes, unless the modules inside of it were called one by one."""
        if not self.calls or self.calls[-1].parent is not call:
            self.fused.append(call.module)

    def abandon(self, call: Call) -> None:
        """Drop a call that raised; a later call of the same module takes its number."""
        if call.row != -1:
            self._replay.close(call)
            return
        self._unwind(call)
        self._counts[call.module] -= 1
        for listener in self.listeners:
            if listener.dropped is not None:
                listener.dropped(call)

    def _replayed(self, call: Call, module: nn.Module, output: Any) -> None:
        self._replay.close(call)
        if not torch.is_grad_enabled() or call.outputs:
            return
        call.outputs = tuple([edge_of(tensor) for tensor in listed(output) if tensor.requires_grad])
        for listener in self.listeners:
            if listener.replayed is not None:
                listener.replayed(call, module, output)

    def _unwind(self, call: Call) -> None:
        while self.stack and self.stack.pop() is not call:
            pass

    def _index(self) -> None:
        for name, module in named_modules(self.model):
            if id(module) not in self.names:
                self.names[id(module)] = name
                self._known.append(module)  # keeps the id from being used again

    def _name_of_stranger(self, module: nn.Module) -> str | None:
        if self._reindexed < _REINDEX_LIMIT:
            self._reindexed += 1
            self._index()
        name = self.names.get(id(module))
        if name is None:
            self._foreign[id(module)] = module
        return name
