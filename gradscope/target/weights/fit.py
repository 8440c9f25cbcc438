"""Fit a checkpoint to a model: prefixes understood, everything missing, unexpected or misshapen shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # missing in torch's stubs

from gradscope.errors import TargetError
from gradscope.target.nearest import shortened
from gradscope.target.weights.read import read_weights

PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.", "_forward_module.")
"""What DataParallel and DDP, torch.compile, Lightning modules and Fabric put before every name."""


@dataclass(frozen=True)
class Fitted:
    """What was loaded, in words, and what the user should know about it."""

    text: str
    notes: tuple[str, ...] = ()


def load_weights(model: nn.Module, path: Path) -> Fitted:
    """Load a checkpoint into a model, strictly.

    Raises:
        TargetError: If it cannot be read, or does not fit the model exactly.
    """
    table = read_weights(path)
    wanted = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}
    fitted, removed, added = fit_names(table, wanted)
    _refuse_misfit(fitted, wanted, path)
    try:
        model.load_state_dict(fitted, strict=False)
    except RuntimeError as error:
        raise TargetError(f"{path.name} does not fit the model.", rule=" ".join(str(error).split())[:300]) from error
    change = "".join([f", prefix {removed!r} removed" if removed else "", f", prefix {added!r} added" if added else ""])
    return Fitted(f"{len(fitted)} tensors from {path.name}{change}")


def fit_names(
    table: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], str, str]:
    """Return the table under the model's names, with the prefix that was removed and the one that was added."""
    best, best_score, removed, added = table, len(table.keys() & wanted.keys()), "", ""
    for taken in _prefixes_of(table):
        for put in _prefixes_of(wanted):
            changed = {_renamed(name, taken, put): value for name, value in table.items()}
            if (score := len(changed.keys() & wanted.keys())) > best_score:
                best, best_score, removed, added = changed, score, taken, put
    return best, removed, added


def _renamed(name: str, taken: str, put: str) -> str:
    return put + name.removeprefix(taken) if name.startswith(taken) else name


def _prefixes_of(table: dict[str, torch.Tensor]) -> list[str]:
    """Every run of usual prefixes that names begin with, such as "module._orig_mod."; the empty one first."""
    found = [""]
    for start in found:
        found += [
            start + prefix
            for prefix in PREFIXES
            if start + prefix not in found and any(name.startswith(start + prefix) for name in table)
        ]
    return found


def _refuse_misfit(fitted: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], path: Path) -> None:
    present = {wanted[name].data_ptr() for name in wanted if name in fitted and not _is_uninitialised(wanted[name])}
    missing = [
        n for n in wanted if n not in fitted and (_is_uninitialised(wanted[n]) or wanted[n].data_ptr() not in present)
    ]
    unexpected = [name for name in fitted if name not in wanted]
    misshapen = [
        f"{name} ({'x'.join(map(str, fitted[name].shape))}, the model has {'x'.join(map(str, wanted[name].shape))})"
        for name in wanted
        if name in fitted and not _is_uninitialised(wanted[name]) and fitted[name].shape != wanted[name].shape
    ]
    parts = [
        f"{len(names)} {kind}: {shortened(names, 4)}"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    if parts:
        raise TargetError(
            f"{path.name} does not fit the model: {'; '.join(parts)}.",
            rule=f"{len(wanted) - len(missing) - len(misshapen)} of {len(wanted)} tensors fit.",
            hint="Build the model with the arguments it was trained with: -a name=value.",
        )


def _is_uninitialised(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, UninitializedTensorMixin)
