"""What was measured: one versioned, columnar file that judging and showing read, without torch.

A recording holds small tables, each a dict of equally long columns. Numbers are Python floats; a value that was not
measured is None, which is not the same as zero, and a gradient that never arrived is None as well (`parameters` says
which parameters take part, `confessions` what could not be seen). All norms are L2 over the whole tensor, accumulated
in float32 or wider, after dividing by the loss scale where one was used, and before any clipping.
"""

from __future__ import annotations

import gzip
import importlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradscope.errors import RecordError
from gradscope.schema import OBSERVATIONS, OUTSIDE_CALL, TABLES, Columns, empty_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "OBSERVATIONS",
    "OUTSIDE_CALL",
    "TABLES",
    "Columns",
    "Provenance",
    "Recording",
    "empty_table",
    "json_number",
    "write_atomically",
]

SCHEMA_VERSION = 1
"""Counted up when a reader of the version before would misread the file."""


@dataclass(frozen=True)
class Provenance:
    """Where a recording comes from; everything a reader needs to repeat it.

    Paths are relative to the folder the user worked in; no host or user name is kept.
    """

    target: str
    inputs: str
    loss: str
    inputs_synthetic: bool = False
    loss_synthetic: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = 0
    device: str = "cpu"
    dtype: str = "float32"
    mode: str = "train"
    optimizer: str | None = None
    lr: float | None = None
    num_steps: int = 1
    batch_shape: str = ""
    num_parameters: int = 0
    gradscope: str = ""
    torch: str = ""
    python: str = ""
    git_commit: str | None = None
    own_loop: bool = False
    """True where the user's own training loop or script was watched, not steps that gradscope took."""
    partial: bool = False
    """True where the watching ended early (Ctrl-C, an exception); what had been measured is kept."""
    notes: tuple[str, ...] = ()
    """How the target was loaded, where that may not be what one expects: in miniature, a part of it, which weights."""


@dataclass(frozen=True)
class Recording:
    """One run of the probe: provenance and tables. Immutable by convention; see TABLES for the columns."""

    provenance: Provenance
    tables: Mapping[str, Columns]

    def __post_init__(self) -> None:
        for name, columns in TABLES.items():
            table = self.tables.get(name)
            if table is None or tuple(table) != columns:
                raise RecordError(f"table '{name}' of the recording does not have the columns {', '.join(columns)}.")
            if len({len(values) for values in table.values()}) > 1:
                raise RecordError(f"the columns of table '{name}' of the recording differ in length.")

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table as dicts, in order."""
        table = self.tables[name]
        for values in zip(*table.values(), strict=True):
            yield dict(zip(table, values, strict=True))

    def num_rows(self, name: str) -> int:
        """Count the rows of a table."""
        return len(next(iter(self.tables[name].values())))

    @property
    def watched_steps(self) -> list[int]:
        """The steps that were measured, ascending."""
        return list(self.tables["steps"]["step"])

    def to_frames(self) -> dict[str, pd.DataFrame]:
        """Return every table as a tidy pandas frame (numbers that were not measured are NaN)."""
        import pandas as pd

        return {name: pd.DataFrame(columns) for name, columns in self.tables.items()}

    def figure(self, view: str = "profile") -> Any:
        """Return one view of the recording as a plotly figure: profile, ratio, heatmap, magnitudes, updates, ...

        Raises:
            ConfigError: There is no such view, or no data for it.
        """
        return _notebook().figure(self, view)

    def _repr_html_(self) -> str:
        """Show the recording in a notebook: verdict, findings and depth profile, without scripts."""
        return str(_notebook().repr_html(self))

    def to_object(self) -> dict[str, Any]:
        """Return the recording as one JSON-ready object; non-finite numbers become "nan", "inf", "-inf"."""
        return {
            "format": "gradscope-recording",
            "schema": SCHEMA_VERSION,
            "provenance": _plain(vars(self.provenance)),
            "tables": _plain(dict(self.tables)),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording atomically; a name that ends in .gz is compressed.

        Raises:
            RecordError: The file cannot be written.
        """
        path = Path(path)
        data = json.dumps(self.to_object(), allow_nan=False, separators=(",", ":")).encode()
        if path.suffix == ".gz":
            data = gzip.compress(data, mtime=0)
        write_atomically(path, data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a recording that `save` wrote.

        Raises:
            RecordError: No such file, not a recording, damaged, or written by a newer gradscope.
        """
        path = Path(path)
        try:
            data = path.read_bytes()
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            content = json.loads(data)
        except FileNotFoundError:
            raise RecordError(f"no such recording: {path}", hint="gradscope inspect TARGET -o run.json") from None
        except (OSError, EOFError, ValueError, RecursionError) as error:
            raise RecordError(
                f"{path} is not a readable recording ({type(error).__name__}): damaged, cut off, or another file.",
                hint="gradscope inspect TARGET -o run.json",
            ) from None
        return cls.from_object(content, str(path))

    @classmethod
    def from_object(cls, content: Any, name: str = "recording") -> Recording:
        """Rebuild a recording from `to_object`'s result.

        Raises:
            RecordError: The object is something else, damaged, or of a newer schema.
        """
        if not isinstance(content, dict) or content.get("format") != "gradscope-recording":
            raise RecordError(f"{name} is not a gradscope recording.", hint="gradscope inspect TARGET -o run.json")
        version = content.get("schema")
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise RecordError(
                f"{name} was written with recording schema {version!r}; this gradscope reads up to {SCHEMA_VERSION}.",
                hint="pip install --upgrade with the version of gradscope that wrote it",
            )
        try:
            known = _restored(content["provenance"])
            provenance = Provenance(**{**known, "notes": tuple(known.get("notes", ()))})
            tables = {table: _restored(content["tables"][table]) for table in TABLES}
            return cls(provenance, tables)
        except (KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{name} is damaged: {type(error).__name__} at {error}.") from None


def _notebook() -> Any:
    """Return what shows a recording in a notebook; by name, as a record knows nothing of the views built on it."""
    return importlib.import_module("gradscope.report.html.notebook")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file in full or not at all.

    Raises:
        RecordError: The folder does not exist or cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(file.name).chmod(0o666 & ~umask)
        Path(file.name).replace(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}.") from None


_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_TEXT_COLUMNS = frozenset({"name", "type", "module", "dtype", "file", "detail", "op", "kind", "what", "why", "block"})


def json_number(value: float) -> float | str:
    """Return a number as JSON can carry it: non-finite ones as "nan", "inf", "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return json_number(value)
    return str(value)


def _restored(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _restored(item, name) for name, item in value.items()}
    if key in _TEXT_COLUMNS:
        return value
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if isinstance(value, str) and value in _NONFINITE and key not in Provenance.__dataclass_fields__:
        return _NONFINITE[value]
    return value
