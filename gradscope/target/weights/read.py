"""Read a checkpoint of any usual kind into a plain table of tensors."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gradscope.errors import GradscopeError, TargetError
from gradscope.target.nearest import did_you_mean
from gradscope.target.weights.safetensors import read_safetensors

TABLE_KEYS = (
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "net",
    "network",
    "weights",
    "ema_state_dict",
    "params",
)
"""Where training scripts and Lightning keep the parameters inside a checkpoint, most usual first."""
INDEX_SUFFIX = ".index.json"
REFUSED = (
    "Only tensors and plain containers are loaded: a pickle can run any code it likes. "
    "Save it with torch.save(model.state_dict(), path) or as .safetensors."
)


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers that a checkpoint holds, by name.

    Raises:
        TargetError: If the file is missing, damaged, wants to run code, or holds no table of tensors.
    """
    if path.is_dir():
        path = _index_or_only_file(path)
    if not path.exists():
        there = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        raise TargetError(
            f"There is no weights file {str(path)!r}.", rule=did_you_mean(path.name, there) if there else ""
        )
    if path.name.endswith(INDEX_SUFFIX):
        return _read_shards(path)
    if path.suffix == ".safetensors":
        return read_safetensors(path, TargetError)
    return table_in(read_pickled(path, TargetError), path.name)


def read_pickled(path: Path, kind: type[GradscopeError]) -> Any:
    """Return what torch.save wrote, refusing pickles that want to run code.

    Raises:
        GradscopeError: Of `kind`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats that end in an error anyway
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if (wanted := _wanted_global(str(error))) is None:
            raise kind(
                f"{path.name} is not a checkpoint, or it is damaged.", rule=" ".join(str(error).split())[:200]
            ) from error
        raise kind(f"{path.name} wants to run code: {wanted}.", rule=REFUSED) from error
    except (
        RuntimeError,
        OSError,
        EOFError,
        ValueError,
        KeyError,
        zipfile.BadZipFile,
        AttributeError,
        TypeError,
    ) as error:
        if (zipfile.is_zipfile(path) and "constants.pkl" in str(error)) or "TorchScript" in str(error):
            raise kind(
                f"{path.name} is a TorchScript archive.", rule="Save the module's state_dict() instead."
            ) from error
        what = "is empty" if path.stat().st_size == 0 else "is damaged, truncated, or not a checkpoint"
        raise kind(f"{path.name} {what}.", rule=" ".join(str(error).split())[:200]) from error


def table_in(content: Any, name: str) -> dict[str, torch.Tensor]:
    """Find the table of tensors inside a checkpoint.

    Raises:
        TargetError: If there is none.
    """
    for _ in range(3):  # {"model": {"state_dict": {...}}} is the deepest seen
        if not isinstance(content, Mapping):
            break
        tensors = {key: value for key, value in content.items() if isinstance(value, torch.Tensor)}
        inner = next((content[key] for key in TABLE_KEYS if isinstance(content.get(key), Mapping)), None)
        if inner is not None:
            content = inner
        elif tensors:
            return tensors
        else:
            break
    keys = f" It holds: {', '.join(map(str, list(content)[:8]))}." if isinstance(content, Mapping) else ""
    raise TargetError(f"{name} holds no table of tensors.{keys}", rule="It should be what model.state_dict() returns.")


def _wanted_global(message: str) -> str | None:
    """The class or function a refused pickle asked for, out of torch's message."""
    for marker in ("Unsupported global: GLOBAL ", "Unsupported class ", "Trying to instantiate class ", "GLOBAL "):
        if marker in message:
            return message.split(marker, 1)[1].split(maxsplit=1)[0].strip(".,'\"`")
    return "an unsupported instruction" if "Unsupported operand" in message or "persistent_load" in message else None


def _index_or_only_file(folder: Path) -> Path:
    for pattern in ("*" + INDEX_SUFFIX, "*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt"):
        if found := sorted(folder.glob(pattern)):
            return found[0]
    raise TargetError(
        f"{str(folder)!r} is a directory without weights.",
        rule="It should hold .safetensors, .bin, .pt or .ckpt files.",
    )


def _read_shards(index: Path) -> dict[str, torch.Tensor]:
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TargetError(f"{index.name} is not an index of shards.", rule='It should have a "weight_map".') from error
    table: dict[str, torch.Tensor] = {}
    for file in files:
        if Path(file).name != file:
            raise TargetError(
                f"{index.name} points outside its folder: {file!r}.", rule="Shards lie beside their index."
            )
        table.update(read_weights(index.parent / file))
    return table
