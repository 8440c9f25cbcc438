"""What a factory returned: a model, (model, inputs) or (model, inputs, loss)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from gradscope.errors import TargetError
from gradscope.target.inputs.batches import Batches
from gradscope.target.source import Built, Offer
from gradscope.target.subject import Origin

WITH_INPUTS, WITH_LOSS = 2, 3


def built_from(result: Any, label: str) -> Built:
    """Interpret what a factory returned.

    Raises:
        TargetError: If there is no nn.Module in the place for it.
    """
    parts = result if isinstance(result, tuple) else (result,)
    if not parts or not isinstance(parts[0], nn.Module):
        raise TargetError(
            f"{label} returned {_described(result)}.",
            rule="It should return an nn.Module, (model, inputs) or (model, inputs, loss).",
        )
    if len(parts) > WITH_LOSS:
        raise TargetError(f"{label} returned {len(parts)} things.", rule="At most (model, inputs, loss) is understood.")
    inputs, loss = (parts[1] if len(parts) >= WITH_INPUTS else None), (parts[2] if len(parts) == WITH_LOSS else None)
    if loss is None and callable(inputs) and not hasattr(inputs, "__iter__"):
        inputs, loss = None, inputs  # (model, loss)
    return Built(
        parts[0],
        Offer(Batches(inputs), Origin(f"returned by {label}")) if inputs is not None else None,
        Offer(_as_loss(loss, label), Origin(f"returned by {label}")) if loss is not None else None,
    )


def _as_loss(loss: Any, label: str) -> Callable[..., Any]:
    if not callable(loss):
        raise TargetError(
            f"{label} returned {_described(loss)} as its loss.", rule="The loss is called as loss(output, batch)."
        )
    return loss  # type: ignore[no-any-return]  # checked on the first step


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return (
        "None"
        if value is None
        else f"a {type(value).__name__}"
        if not isinstance(value, type)
        else f"the class {value.__name__}"
    )
