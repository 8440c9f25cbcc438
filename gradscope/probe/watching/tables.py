"""The tables of a recording as they fill: one method per table, rows looked up by what they are about."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradscope.probe.listing import named_modules
from gradscope.probe.watching.calls import Call
from gradscope.probe.watching.roles import projection_role, role_of
from gradscope.probe.watching.source import is_user_file, place_of_class, relative
from gradscope.record import TABLES, Columns, Provenance, Recording, empty_table


class Tables:
    """A recording in the making.

    Args:
        root: The folder files are shown relative to.
    """

    def __init__(self, root: Path) -> None:
        self.columns: dict[str, Columns] = {name: empty_table(name) for name in TABLES}
        self._root = root
        self._calls: dict[tuple[str, int], int] = {}
        self._parameters: dict[str, int] = {}
        self._confessed: set[tuple[str, str]] = set()
        self._user_files: dict[str | None, str | None] = {}

    def add(self, table: str, **row: Any) -> int:
        """Append a row; columns left out are None. Return its number."""
        columns = self.columns[table]
        assert row.keys() <= columns.keys(), f"unknown columns of {table}: {sorted(row.keys() - columns.keys())}"
        for column, values in columns.items():
            values.append(row.get(column))
        return len(next(iter(columns.values()))) - 1

    def add_rows(self, table: str, rows: Sequence[tuple[Any, ...]], names: tuple[str, ...], **same: Any) -> None:
        """Append many rows at once.

        Args:
            table: Which table.
            rows: The rows, each with the columns `names` in order.
            names: Columns in which they differ.
            same: Columns in which they do not; those left out are None.
        """
        if rows:
            columns = self.columns[table]
            assert {*names, *same} <= columns.keys(), f"unknown columns of {table}"
            for name, values in zip(names, zip(*rows, strict=True), strict=True):
                columns[name].extend(values)
            for name in columns.keys() - names:
                columns[name].extend([same.get(name)] * len(rows))

    def confess(self, what: str, why: str) -> None:
        """Say, once, what was not measured and why."""
        if (what, why) not in self._confessed:
            self._confessed.add((what, why))
            self.add("confessions", what=what, why=why)

    def file(self, file: str | None) -> str | None:
        """Return a file name as the recording keeps it."""
        return None if file is None else relative(file, self._root)

    def add_calls(self, calls: Iterable[Call]) -> None:
        """Append the calls of a step that no earlier step had; `row_of_call` finds them all."""
        known = self._calls
        new = [call for call in calls if (call.module, call.call) not in known]
        first = len(self.columns["calls"]["module"])
        known.update(((call.module, call.call), row) for row, call in enumerate(new, first))
        rows = [
            (call.module, call.call, None, None if call.shape is None else list(call.shape), _name_of(call.dtype))
            for call in new
        ]
        self.add_rows("calls", rows, ("module", "call", "parent", "shape", "dtype"))
        for call in new:  # a parent ends, and gets its row, after its children
            parent = call.parent
            row = self._calls[call.module, call.call]
            self.columns["calls"]["parent"][row] = (
                None if parent is None else self._calls.get((parent.module, parent.call))
            )

    def row_of_call(self, call: Call | None) -> int | None:
        """Return the row of a call that was added, None for no call or one that never ended."""
        return None if call is None else self._calls.get((call.module, call.call))

    def user_file(self, file: str | None) -> str | None:
        """Return a file name as the recording keeps it where it is the user's, None for a library's."""
        if file not in self._user_files:
            users = file is not None and is_user_file(file)
            self._user_files[file] = relative(file, self._root) if users and file is not None else None
        return self._user_files[file]

    def knows_parameters(self, names: Iterable[str]) -> bool:
        """Tell whether all of some parameters have been described."""
        return bool(self._parameters) and all(name in self._parameters for name in names)

    def describe_parameters(self, model: nn.Module) -> None:
        """Fill the table of parameters, once they all have a shape."""
        roles = {name: role_of(module) for name, module in named_modules(model)}
        first_names: dict[int, str] = {}
        rows: list[tuple[Any, ...]] = []
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if name in self._parameters:
                continue
            first = first_names.setdefault(id(parameter), name)
            size = (None, None) if is_lazy(parameter) else (list(parameter.shape), parameter.numel())
            self._parameters[name] = len(self._parameters)
            rows.append((
                name, name.rpartition(".")[0], *size, _name_of(parameter.dtype), parameter.requires_grad,
                None if first == name else first, projection_role(name, roles),
            ))  # fmt: skip
        names = ("name", "module", "shape", "num_elements", "dtype", "requires_grad", "shared_with", "role")
        self.add_rows("parameters", rows, names)

    def parameter_rows(self) -> Iterable[tuple[str, int]]:
        """Return the name and row of every parameter."""
        return self._parameters.items()

    def describe_modules(self, model: nn.Module, called: set[str]) -> None:
        """Fill the table of modules anew."""
        self.columns["modules"] = empty_table("modules")
        for name, module in named_modules(model):
            file, line = place_of_class(type(module))  # type: ignore[arg-type]  # classes are hashable
            self.add(
                "modules", name=name, type=type(module).__name__, role=role_of(module),
                num_parameters=sum(0 if is_lazy(p) else p.numel() for p in module.parameters(recurse=False)),
                called=name in called, file=self.file(file), line=line,
            )  # fmt: skip

    def of_step(self, table: str, step: int, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return some columns of the rows of one step."""
        data = self.columns[table]
        first, end = bisect_left(data["step"], step), bisect_right(data["step"], step)  # written in order
        return list(zip(*(data[column][first:end] for column in columns), strict=True))

    def recording(self, provenance: Provenance) -> Recording:
        """Return what has been gathered so far as a recording."""
        copied = {name: {column: list(values) for column, values in t.items()} for name, t in self.columns.items()}
        return Recording(provenance, copied)


def _name_of(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")
