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

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1

TABLES: dict[str, tuple[str, ...]] = {
    # Static structure -------------------------------------------------------------------------------------------
    # One row per module. `role`: attention, norm, linear, conv, embedding, activation, recurrent, dropout, container
    # or other. `file`/`line`: where its class is defined in the user's code (relative), None for library classes.
    "modules": ("name", "type", "role", "num_parameters", "called", "file", "line"),
    # One row per parameter. `role`: query, key, value, query_key_value, output (of an attention) or None.
    # `shared_with`: the first name of the same tensor, None when it is the first. `takes_part`: it was reached by
    # the backward of the first watched step (None when that is unknown, as under optimizers that clear gradients).
    "parameters": ("name", "module", "shape", "dtype", "num_elements", "requires_grad", "shared_with", "role",
                   "takes_part"),
    # One row per (module, call) in the order in which the calls ended. `parent` is a row of this table.
    "calls": ("module", "call", "parent", "shape", "dtype"),
    # One row per residual addition (and concatenation) executed in one forward, in execution order. `call` is a row
    # of `calls` still open when the addition ran (whose addition it is). `kind`: identity, scaled, gated, projection
    # or concat. `counted` is False for concat. `placement`: pre, post, sandwich or none. `branches`/`skips`: module
    # names. `skip_scale`/`branch_scale`: constants, None when learnt, input-dependent or unknown. `group`: additions
    # with the same number form one parallel group. `depth` is its row of `stream`, None when it is not on it.
    "sites": ("name", "module", "call", "op", "kind", "counted", "placement", "branches", "skips", "skip_scale",
              "branch_scale", "group", "recurrent", "depth", "file", "line"),
    # The backbone: the ordered stations of the stream from input to loss. `kind`: start, addition, block or end.
    # `block` names the repeated block the station closes or lies in. `call` and `site` are rows of those tables.
    "stream": ("name", "kind", "block", "module", "call", "site"),
    # Measured per watched step ----------------------------------------------------------------------------------
    "steps": ("step", "loss", "grad_norm", "loss_scale", "lr"),
    # grad_rms and forward_rms follow from num_elements. `forward_absmax` and `grad_absmax` may be None (not taken).
    "call_stats": ("step", "call", "num_elements", "forward_norm", "grad_norm", "forward_absmax", "grad_absmax"),
    "parameter_stats": ("step", "parameter", "grad_norm", "weight_norm", "update_norm"),
    # grad_norm: at the sum. skip_grad_norm / branch_grad_norm: what reaches the stream x through either, exactly.
    # cosine: between those two gradients. forward ratio = branch_norm / skip_norm (as added, after scaling).
    "site_stats": ("step", "site", "skip_norm", "branch_norm", "out_norm", "grad_norm", "skip_grad_norm",
                   "branch_grad_norm", "cosine"),
    "stream_stats": ("step", "station", "num_elements", "forward_norm", "grad_norm"),
    # Everything else that is one number of one thing at one step; OBSERVATIONS says what each metric is.
    # `module` is a module, parameter or site name ("" for the whole model); `call` its call, 0 by default.
    "observations": ("step", "metric", "module", "call", "value"),
    # Gradient magnitudes of at most 1024 elements of each, evenly spread: counts[i] of them have
    # floor(log2|g|) == first_log2 + i; `zeros` are exactly zero. `kind`: activation or parameter.
    "histograms": ("step", "name", "kind", "first_log2", "counts", "zeros", "nonfinite"),
    # Things that happened at a place: nonfinite_forward, nonfinite_backward, cut, eager, recomputed, error ...
    "events": ("step", "kind", "module", "call", "op", "file", "line", "detail"),
    # What was not measured, and why.
    "confessions": ("what", "why"),
}

OBSERVATIONS: dict[str, str] = {
    "jacobian_anisotropy": "kappa_J = N / participation ratio of the squared singular values, stream end to start",
    "token_cosine": "mean off-diagonal cosine between the tokens of a sequence at a station",
    "sample_cosine": "mean off-diagonal cosine between the samples of the batch at a station",
    "dead_fraction": "fraction of units of an activation that are off for every sample (ReLU family)",
    "saturated_fraction": "fraction of activation values whose derivative is below 2 % of its maximum",
    "attention_entropy": "mean entropy of attention rows divided by log(number of keys)",
    "attention_logit_max": "largest attention logit before the softmax",
    "activation_peak": "largest absolute value of a stream station divided by its root mean square",
    "grad_zeros": "fraction of gradient elements that are exactly zero",
    "underflow_fp16": "fraction of non-zero gradient elements below 2^-25 at the loss scale used",
    "underflow_e5m2": "fraction of non-zero gradient elements below 2^-17",
    "underflow_e4m3": "fraction of non-zero gradient elements below 2^-10",
    "overflow_fp16": "fraction of gradient elements above 65504 at the loss scale used",
    "grad_log2_max": "log2 of the largest absolute gradient element",
    "absorption_bf16": "fraction of elements of a residual sum that bfloat16 addition leaves unchanged",
    "absorption_fp16": "fraction of elements of a residual sum that float16 addition leaves unchanged",
    "absorption": "the same in the dtype in which the sum was really taken",
    "batch_samples": "number of values each normalisation statistic is taken over",
    "probabilities_as_logits": "fraction of rows handed to a (log-)softmax or logit loss that are probabilities",
    "unnormalised_log_probabilities": "fraction of rows handed to nll_loss whose exponentials do not sum to one",
    "loss_classes": "number of classes a cross-entropy is taken over (over one class it is always 0)",
    "jacobian_passes": "backward passes, on a part of the batch, that the Jacobian anisotropy took: its cost",
    "jacobian_error": "standard error of the Jacobian anisotropy beyond 1, relative to it",
    "jacobian_gain_log10": "log10 of the mean squared singular value of the same Jacobian",
    "amplification": "relative output change under 1 % weight noise, divided by 1 % (Admin, Liu 2020)",
    "shattering_cosine": "cosine of input gradients at x and at x + 5 % noise",
    "gradient_cosine": "cosine of the gradients of two disjoint halves of the batch",
}

Columns = dict[str, list[Any]]


def empty_table(name: str) -> Columns:
    """Make an empty table with the columns that TABLES declares for it."""
    return {column: [] for column in TABLES[name]}


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
            provenance = Provenance(**_restored(content["provenance"]))
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
