"""A copy of a model to try things on, so that the model itself stays untouched.

Trying an input on the model would advance BatchNorm's statistics, give lazy modules their shapes and set off
data-dependent initialisation: the real first forward must be the one that is watched.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # missing in torch's stubs

SHARE_ABOVE_BYTES = 2**30
"""Models with more parameters than this share them with their copy: two of them might not fit into memory."""


def scratch_copy(model: nn.Module, rebuild: Callable[[], nn.Module] | None = None) -> nn.Module | None:
    """Return a copy that can be run and thrown away, or None where none can be made.

    Args:
        model: The model to copy.
        rebuild: Builds the model anew, for those that cannot be copied.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an exported program warns of what it is made of
            return copy.deepcopy(model, _memo(model))
    except Exception:  # any object may sit in a module; each refuses to be copied in its own way
        if rebuild is None:
            return None
    try:
        return rebuild()
    except Exception:  # the factory worked once; if it does not work twice there is no scratch copy
        return None


def _memo(model: nn.Module) -> dict[int, Any]:
    """Keep what deepcopy refuses (tensors that are no leaves) or should not double (very large models)."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
    parameters = [p for p in model.parameters() if not isinstance(p, UninitializedTensorMixin)]
    if sum(p.numel() * p.element_size() for p in parameters) > SHARE_ABOVE_BYTES:
        memo.update({id(p): p for p in parameters})
    return memo
