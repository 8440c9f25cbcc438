"""What a recording says of the model and of the run, before any number: modules, parameters, calls, places, events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gradscope.metrics.depth import Station
from gradscope.metrics.weights import Parameter
from gradscope.record import Provenance, Recording


@dataclass(frozen=True)
class Module:
    """A module of the model: its name, class, role, whether it was called, where its class is written."""

    name: str
    type: str
    role: str
    num_parameters: int
    called: bool
    file: str | None
    line: int | None


@dataclass(frozen=True)
class Event:
    """Something that happened at a place (see the recording's `events` table)."""

    step: int | None
    kind: str
    module: str
    call: int
    op: str | None
    file: str | None
    line: int | None
    detail: str | None


class Described:
    """A recording with its tables of names indexed; nothing is worked out before it is asked for."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    @property
    def provenance(self) -> Provenance:
        """Where the recording comes from."""
        return self.recording.provenance

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The watched steps, ascending."""
        return tuple(sorted(set(self.recording.watched_steps)))

    @cached_property
    def losses(self) -> dict[int, float | None]:
        """Loss per watched step."""
        return dict(zip(self.recording.tables["steps"]["step"], self.recording.tables["steps"]["loss"], strict=True))

    @cached_property
    def learning_rate(self) -> float | None:
        """The optimizer's learning rate, where known."""
        rates = [rate for rate in self.recording.tables["steps"]["lr"] if rate is not None]
        return rates[-1] if rates else self.provenance.lr

    @property
    def optimizer(self) -> str:
        """Name of the optimizer in lower case, "" where the weights were not updated."""
        name = (self.provenance.optimizer or "").lower()
        return "" if name == "none" else name

    @property
    def rescales_gradients(self) -> bool:
        """Whether the optimizer rescales every tensor's gradient (Adam and its kin), so that it forgives small ones."""
        return "sgd" not in self.optimizer

    @cached_property
    def modules(self) -> dict[str, Module]:
        """Modules by name, in the model's order."""
        fields = Module.__dataclass_fields__
        rows = self.recording.rows("modules")
        return {row["name"]: Module(**{field: row[field] for field in fields}) for row in rows}

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters in the model's order, one per tensor name."""
        return tuple(
            Parameter(
                row=number,
                name=row["name"],
                module=row["module"],
                shape=tuple(row["shape"] or ()),
                dtype=row["dtype"] or "",
                num_elements=row["num_elements"] or 0,
                requires_grad=bool(row["requires_grad"]),
                role=row["role"],
                takes_part=row["takes_part"],
                shared=row["shared_with"] is not None,
            )
            for number, row in enumerate(self.recording.rows("parameters"))
        )

    @cached_property
    def trainable(self) -> tuple[Parameter, ...]:
        """Parameters that are meant to learn, each tensor once."""
        return tuple(p for p in self.parameters if p.requires_grad and not p.shared)

    @cached_property
    def call_modules(self) -> list[str]:
        """Module of every row of the call table, in the order in which the calls ended."""
        return self.recording.tables["calls"]["module"]

    @cached_property
    def calls_of(self) -> dict[str, list[int]]:
        """Rows of the call table per module, in order of call."""
        found: dict[str, list[int]] = {}
        for row, module in enumerate(self.call_modules):
            found.setdefault(module, []).append(row)
        return found

    @cached_property
    def stations(self) -> tuple[Station, ...]:
        """The stream's stations from the input to the loss."""
        calls = self.recording.tables["calls"]["call"]
        return tuple(
            Station(
                row=number,
                name=row["name"],
                kind=row["kind"],
                block=row["block"],
                module=row["module"] or "",
                call=calls[row["call"]] if row["call"] is not None and row["call"] < len(calls) else 0,
            )
            for number, row in enumerate(self.recording.rows("stream"))
        )

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Events in the order in which they were recorded."""
        rows = self.recording.rows("events")
        return tuple(Event(**{**row, "call": row["call"] or 0, "module": row["module"] or ""}) for row in rows)

    def events_of(self, *kinds: str) -> tuple[Event, ...]:
        """Events of the given kinds, in order."""
        return tuple(event for event in self.events if event.kind in kinds)

    def place(self, module: str) -> tuple[str | None, int | None]:
        """Return file and line of the user's code nearest to a module (or parameter): its class, else its parents'."""
        while True:
            found = self.modules.get(module)
            if found is not None and found.file is not None:
                return found.file, found.line
            if not module:
                return None, None
            module = module.rpartition(".")[0]

    def was_called(self, module: str) -> bool:
        """Whether the module was called in a watched forward."""
        found = self.modules.get(module)
        return found is not None and bool(found.called)
