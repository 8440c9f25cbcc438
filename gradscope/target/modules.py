"""A model that is already at hand, as a Subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from gradscope.errors import TargetError
from gradscope.target.inputs.batches import Batches
from gradscope.target.options import Options
from gradscope.target.source import Built, Offer, Source
from gradscope.target.step import Step
from gradscope.target.subject import Batch, Origin, Subject


def from_module(
    model: nn.Module,
    batches: Any = None,
    loss: Callable[[Any, Batch], Tensor] | None = None,
) -> Subject:
    """Make a subject of a module, finding what was not given.

    Args:
        model: The module, in the mode it is to be used in.
        batches: One batch, a list of batches, a DataLoader; None to find some.
        loss: ``loss(output, batch)`` to a scalar; None to find one.

    Raises:
        TargetError: If `model` is not a module.
        InputsError: If no inputs are given and none can be found.
        LossError: If no loss is given and none can be found.
    """
    if not isinstance(model, nn.Module):
        raise TargetError(
            f"{type(model).__name__} is not a torch.nn.Module.",
            rule="Give a module, or a target string such as 'model.py'.",
        )
    name = type(model).__name__
    built = Built(
        model,
        None if batches is None else Offer(Batches(batches), Origin("the caller")),
        None if loss is None else Offer(loss, Origin("the caller")),
    )
    step = Step(Source(name, lambda: built, rebuilds=False), built, Options({}, None, None, None, None, "keep", True))
    found, (forward, found_loss) = step.inputs, step.forward_and_loss()
    return Subject(
        model=model,
        batches=found.batches,
        loss=found_loss.loss,
        target=name,
        inputs_origin=found.origin,
        loss_origin=found_loss.origin,
        forward=forward,
        notes=step.notes,
    )
