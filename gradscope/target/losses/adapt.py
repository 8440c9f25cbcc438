"""Call a user's loss the way it wants to be called: loss(output, batch), or criterion(prediction, target)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gradscope.errors import LossError
from gradscope.target.inputs.arrange import TARGET_NAMES
from gradscope.target.losses.leaves import named_tensors
from gradscope.target.subject import Batch

Loss = Callable[[Any, Batch], torch.Tensor]
Targets = Callable[[Batch], Any]
MAIN_OUTPUTS = ("logits", "prediction", "predictions", "pred", "out", "output")
"""What the output is called that is compared with a target, where there are several."""


def adapted(loss: Callable[..., Any], targets: Targets | None, where: str) -> Loss:
    """Return ``loss(output, batch)`` for a function of that form, or for a criterion of prediction and target.

    Raises:
        LossError: If it is a criterion and the batch carries no target.
    """
    names = _parameter_names(loss)
    if names is not None and len(names) == 1 and not isinstance(loss, nn.Module):
        return lambda output, batch: loss(output)
    if not (isinstance(loss, nn.Module) or wants_target(names)):
        return loss
    if targets is None:
        raise LossError(
            f"{where} compares a prediction with a target, and the batch carries none.",
            rule="Let the batch be (inputs, targets), or define loss(output, batch) in your file.",
        )
    return lambda output, batch: loss(prediction_in(output), targets(batch))


def wants_target(names: list[str] | None) -> bool:
    """Whether a loss function's second parameter is named for a target rather than for the batch."""
    return (
        names is not None and len(names) > 1 and names[1] in (*TARGET_NAMES, "true", "truth", "expected", "reference")
    )


def prediction_in(output: Any) -> Any:
    """Return the tensor to compare with a target: the output itself, its logits, or its first tensor."""
    if isinstance(output, torch.Tensor):
        return output
    tensors = dict(named_tensors(output))
    usual = next((name for name in MAIN_OUTPUTS if name in tensors), None)
    return tensors[usual] if usual else next(iter(tensors.values()), output)


def _parameter_names(loss: Callable[..., Any]) -> list[str] | None:
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):
        return None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
