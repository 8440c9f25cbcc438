"""Read a checkpoint of any usual kind into a plain table of tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gradscope.errors import TargetError
from gradscope.target.nearest import did_you_mean, shortened
from gradscope.target.weights.pickled import read_pickled
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
    keys = f" It holds: {', '.join(map(str, list(content)[:8]))}." if isinstance(content, Mapping) and content else ""
    raise TargetError(f"{name} holds no table of tensors.{keys}", rule="It should be what model.state_dict() returns.")


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
    _refuse_lost_shards(index, places, files)
    table: dict[str, torch.Tensor] = {}
    for file in files:
        table.update(read_weights(index.parent / file))
    return table


def _refuse_lost_shards(index: Path, places: Mapping[str, str], files: list[str]) -> None:
    for file in files:
        if not isinstance(file, str) or Path(file).name != file:
            raise TargetError(
                f"{index.name} points outside its folder: {file!r}.", rule="Shards lie beside their index."
            )
    lost = [file for file in files if not (index.parent / file).is_file()]
    if lost:
        held = [name for name, file in places.items() if file in lost]
        raise TargetError(
            f"{len(lost)} of the {len(files)} shards that {index.name} names are not there: {shortened(lost, 3)}.",
            rule=f"They hold {len(held)} of {len(places)} tensors: {shortened(held, 3)}.",
            hint=f"copy them into {index.parent}",
        )
