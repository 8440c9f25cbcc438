"""Every addition of a forward pass, as it runs: whose it is, where it is written, how large its terms are.

`AdditionRecorder` is a torch-function mode: it sees each torch call of the forward and hands it on unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from gradscope.probe.structure.faint_rows import row_weights
from gradscope.probe.structure.functions import SUMS
from gradscope.probe.structure.mixing import MIXING, product_sequence, stack_among, weighed
from gradscope.probe.structure.notes import Notes, sequence_now, sum_sequence
from gradscope.probe.structure.places import Span
from gradscope.probe.structure.scripted import is_fused
from gradscope.probe.structure.summands import alike, as_added, is_number, terms_in
from gradscope.probe.structure.trace import Trace
from gradscope.probe.structure.written import written_at
from gradscope.probe.watching.calls import Call, CallTracker, Listener
from gradscope.probe.watching.modes import Function, OwnMode, shielded
from gradscope.probe.watching.rows import Rows
from gradscope.probe.watching.tensors import inside_transform, listed

Key = tuple[str, int, int]
"""An addition across steps: (module, call of the module, which addition of that call)."""

Place = tuple[str, str | None, int | None]
"""Where an addition is written: (module, file, line)."""

_FIRST = 8
"""Additions of a forward whose terms are looked at row by row: what an embedding adds up, and the first branch's."""


@dataclass(slots=True)
class Addition:
    """One executed addition (or concatenation).

    Attributes:
        op: The function's name, "add_" for instance.
        call: The innermost module call it ran in, None outside of the model.
        key: What it is called on other steps.
        code: The code object of the user's function it is written in.
        line: The line in that file.
        terms: Handles of the norms of its terms as they are added, by their position among the operation's inputs.
        out: Handle of the norm of the sum.
        weights: Those of the rows of its terms (see `faint_rows`), of the forward's first additions.
        readable: Its values may be read; they must not inside of a functorch transform.
    """

    op: str
    call: Call | None
    key: Key
    code: CodeType | None = None
    line: int | None = None
    terms: tuple[int | None, ...] = ()
    out: int | None = None
    weights: tuple[torch.Tensor | None, ...] = ()
    readable: bool = True

    @property
    def file(self) -> str | None:
        """The source file, as Python knows it."""
        return None if self.code is None else self.code.co_filename

    @property
    def place(self) -> Place:
        """Where it is written: loops run the same line of the same module again."""
        return self.call.module if self.call is not None else "", self.file, self.line


class AdditionRecorder(OwnMode):
    """Record the additions of one forward; enter it around the forward and the loss.

    Args:
        calls: The tracker of module calls that is active in the same forward.
        rows: Where norms go; None takes none.
        known: The additions whose norms are wanted; None means all that may be residual.
        quick: The structure is known: nothing but the norms of the known additions is wanted.
        repeats: See what a backward pass runs, and not what the forward does.
    """

    def __init__(
        self,
        calls: CallTracker,
        rows: Rows | None = None,
        known: frozenset[Key] | None = None,
        *,
        quick: bool = False,
        repeats: bool = False,
    ) -> None:
        super().__init__()
        self._repeats = repeats
        self.calls = calls
        self.quick = quick
        self.onlooker: Callable[[Addition, list[torch.Tensor]], None] | None = None
        """Told of every addition whose norms are wanted, with its terms, before it runs."""
        self.functions: frozenset[Callable[..., Any]] = frozenset()
        self.on_function: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any], None] | None = None
        """Told of every call of one of `functions`, right after it."""
        self.additions: dict[Any, Addition] = {}
        """By the autograd sequence number of the sum's node, or by its Trace; empty where quick."""
        self.by_key: dict[Key, Addition] = {}
        """Those whose norms were wanted."""
        self.notes = Notes()
        """Empty where quick."""
        self.spans: list[Span] = []
        """The module calls of the forward, in the order in which they ended; empty where quick."""
        self._starts: dict[Call, int] = {}
        self._listener = Listener(self._entered, self._left, None)
        self._rows = rows
        self._known = known
        self._counts: dict[int, int] = {}

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name: str = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if name in SUMS:
            return shielded(lambda call: self._sum(call, name, args, kwargs), func)
        if name in MIXING:
            return shielded(lambda call: self._product(func, call, name, args, kwargs), func)
        if self.quick and func not in self.functions:
            return func(*args, **kwargs)
        return shielded(lambda call: self._look(func, call, name, args, kwargs), func)

    def _look(self, func: Function, call: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.quick:
            result = call(*args, **kwargs)
        else:
            before = sequence_now()
            result = call(*args, **kwargs)
            self.notes.ran(name, before)
            is_data = isinstance(result, torch.Tensor | tuple | list) and type(result) is not torch.Size
            if is_data and self._in_turn:
                self.notes.see(name, args, kwargs, result, self._call, before)
        if func in self.functions and self.on_function is not None:
            self.on_function(func, args, kwargs, result)
        return result

    def __enter__(self) -> Any:
        if not self.quick:
            self.calls.listeners.append(self._listener)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)  # type: ignore[no-untyped-call]
        if not self.quick:
            self.calls.listeners.remove(self._listener)

    def _entered(self, call: Call, _module: torch.nn.Module) -> None:
        self._starts[call] = sequence_now()

    def _left(self, call: Call, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        start = self._starts.pop(call, 0)
        outputs = listed(output)
        self.notes.splice(outputs)  # what reads them next may be out of sight: a loss outside of the model
        self.spans.append(Span(start, sequence_now(), call, self.notes.traces_of(outputs)))
        if is_fused(module, output, start):
            self.notes.look_inside(module, args, output, call)

    @property
    def fused(self) -> list[str]:
        """Modules that were left to run as one fused operation of torch."""
        return list(dict.fromkeys(self.calls.fused))

    @property
    def _in_turn(self) -> bool:
        """Whether what runs now is what is to be seen."""
        return (torch._C._current_graph_task_id() != -1) is self._repeats

    @property
    def _call(self) -> Call | None:
        return self.calls.stack[-1] if self.calls.stack else None

    def _sum(self, call: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._in_turn:
            return call(*args, **kwargs)
        addition = self._begun(name)
        if self.quick and not self._is_known(addition):
            return call(*args, **kwargs)
        if inside_transform():
            return self._transformed(addition, call, args, kwargs)
        terms = terms_in(name, args, kwargs, self.notes.maker_of)
        wanted = self._rows is not None and len(terms) > 1 and self._wants(addition, terms)
        if wanted:
            if len(self.by_key) < _FIRST:
                addition.weights = tuple([row_weights(term.detach()) for term in terms])
            self.by_key[addition.key] = addition
            if self.onlooker is not None:
                self.onlooker(addition, terms)
            if name.endswith("_"):  # in place: the first term is about to be overwritten
                addition.terms = self._norms(name, terms, args, kwargs)
        raw = [] if self.quick else self._raw(terms)
        result = call(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            if wanted and self._rows is not None:
                addition.terms = addition.terms or self._norms(name, terms, args, kwargs)
                addition.out = self._rows.norm(result)
            if not self.quick:
                self._note(addition, terms, raw, (args, kwargs), result)
        return result

    def _product(
        self, func: Function, call: Function, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """See a product of matrices, which may sum a stack."""
        stack = stack_among(args, kwargs) if self._in_turn and not inside_transform() else None
        if stack is None:
            return self._look(func, call, name, args, kwargs)
        addition = self._begun(name)
        result = self._look(func, call, name, args, kwargs)
        sums = isinstance(result, torch.Tensor) and result.numel() * stack.size == stack.tensor.numel()
        if not sums or (self.quick and not self._is_known(addition)):
            return result
        if self._rows is not None and (self._known is None or self._is_known(addition)):
            self.by_key[addition.key] = addition
            addition.terms = tuple([self._rows.norm(term) for term in weighed(func, stack, args, kwargs)])
            addition.out = self._rows.norm(result)
        sequence = None if self.quick else product_sequence(result)
        if sequence is not None:
            addition.code, addition.line = written_at(sys._getframe())
            self.additions[sequence] = addition
        return result

    def _begun(self, name: str) -> Addition:
        """Number an addition among those of its call."""
        inside = self._call
        count = self._counts[id(inside)] = self._counts.get(id(inside), -1) + 1
        return Addition(name, inside, (inside.module, inside.call, count) if inside is not None else ("", -1, count))

    def _is_known(self, addition: Addition) -> bool:
        return self._known is not None and addition.key in self._known

    def _transformed(self, addition: Addition, call: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note where a sum inside of a functorch transform is written; its values must not be read."""
        addition.readable = False
        addition.code, addition.line = written_at(sys._getframe())
        before = sequence_now()
        result = call(*args, **kwargs)
        if not self.quick:
            self.additions.update(dict.fromkeys(range(before, sequence_now()), addition))
        return result

    def _raw(self, terms: list[torch.Tensor]) -> list[tuple[int, Trace]]:
        return [
            (i, self.notes.trace(term)) for i, term in enumerate(terms) if not term.requires_grad and is_number(term)
        ]

    def _note(
        self,
        addition: Addition,
        terms: list[torch.Tensor],
        raw: list[tuple[int, Trace]],
        given: tuple[tuple[Any, ...], dict[str, Any]],
        result: torch.Tensor,
    ) -> None:
        """Note where the sum is in the graph, and in the source."""
        addition.code, addition.line = written_at(sys._getframe())
        if not result.requires_grad:
            for trace in self.notes.see(addition.op, *given, result, addition.call):
                if addition.call is not None or self._repeats:
                    self.additions[trace] = addition
            return
        sequence = sum_sequence(result)
        if sequence is not None:
            self.additions[sequence] = addition
            self.notes.splice(terms)
            for position, trace in raw:
                self.notes.hide(sequence, position, trace.without_gradient())

    def _wants(self, addition: Addition, terms: list[torch.Tensor]) -> bool:
        if self._known is not None:
            return self._is_known(addition)
        first = terms[0]
        return (
            # Under re-entrant checkpointing the forward runs without gradients.
            (not torch.is_grad_enabled() or any(term.requires_grad for term in terms))
            and all(
                (term.is_floating_point() or term.is_complex()) and term.layout is torch.strided and term.dim() > 0
                for term in terms
            )
            and alike(addition.op, terms)
            and first.numel() > 1
        )

    def _norms(
        self, name: str, terms: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int | None, ...]:
        assert self._rows is not None
        return tuple([self._rows.norm(as_added(name, terms, i, args, kwargs)) for i in range(len(terms))])
