"""Batches kept in a file: .pt, .npz, .npy, .safetensors or .json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from gradscope.errors import InputsError
from gradscope.target.weights.pickled import read_pickled
from gradscope.target.weights.safetensors import read_safetensors

SUFFIXES = (".pt", ".pth", ".npz", ".npy", ".safetensors", ".json")


def read(path: Path) -> Any:
    """Return the batch (or the list of batches) in a file.

    Raises:
        InputsError: If it cannot be read, or holds no tensors.
    """
    if not path.exists():
        raise InputsError(f"There is no file {str(path)!r} to take inputs from.")
    if path.suffix in (".pt", ".pth"):
        return read_pickled(path, InputsError)
    if path.suffix == ".safetensors":
        return _positional(read_safetensors(path, InputsError))
    if path.suffix in (".npz", ".npy"):
        return _read_numpy(path)
    return _read_json(path)


def _read_numpy(path: Path) -> Any:
    import numpy as np

    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return torch.as_tensor(content)
        return _positional({name: torch.as_tensor(content[name]) for name in content.files})
    except (OSError, ValueError, EOFError, TypeError) as error:
        raise InputsError(
            f"{path.name} cannot be read: {error}.", rule="Only plain numeric arrays are loaded."
        ) from error


def _read_json(path: Path) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return {key: torch.tensor(value) for key, value in content.items()}
        return torch.tensor(content)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise InputsError(
            f"{path.name} holds no tensors: {error}.",
            rule="It should be a list of numbers, or an object of such lists by input name.",
        ) from error


def _positional(tensors: dict[str, Any]) -> Any:
    """Arrays that were saved without names (arr_0, arr_1 …) are positional inputs."""
    if tensors and all(name == f"arr_{i}" for i, name in enumerate(tensors)):
        return tuple(tensors.values())
    return tensors
