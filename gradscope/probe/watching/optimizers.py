"""The optimizer that a probe steps with."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gradscope.errors import ConfigError
from gradscope.probe import uncompiled

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
NO_OPTIMIZER = "none"
SUBJECTS_OWN = "subject"


def check(name: str) -> None:
    """Complain of an unknown optimizer before anything runs.

    Raises:
        ConfigError: No such optimizer.
    """
    known = [*OPTIMIZERS, NO_OPTIMIZER, SUBJECTS_OWN]
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1) or ["adam"]
        rule = f"One of {', '.join(known)}."
        raise ConfigError(f"'{name}' is not an optimizer.", rule=rule, hint=f"--optimizer {nearest[0]}")


def build(
    name: str, model: nn.Module, lr: float, own: Callable[[nn.Module], torch.optim.Optimizer] | None
) -> torch.optim.Optimizer | None:
    """Build the optimizer over everything that requires a gradient; None for "none" and for nothing to optimize."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if name == NO_OPTIMIZER or not parameters:
        return None
    if name == SUBJECTS_OWN:
        if own is not None:
            return own(model)
        name = "adam"
    with uncompiled.building():
        return OPTIMIZERS[name](parameters, lr=lr)


def learning_rate(optimizer: Any) -> float | None:
    """Return the learning rate of an optimizer's first group."""
    groups = getattr(optimizer, "param_groups", None)
    rate = groups[0].get("lr") if groups else None
    return None if rate is None else float(rate)
