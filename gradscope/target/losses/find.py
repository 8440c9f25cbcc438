"""Find the loss, in a fixed order: given, returned, the model's own, named, chosen, made up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradscope.errors import LossError, TargetError
from gradscope.target.importing import folder_of
from gradscope.target.inputs.given import code_at
from gradscope.target.losses.adapt import Loss, Targets, adapted, prediction_in
from gradscope.target.losses.chosen import chosen_loss
from gradscope.target.losses.leaves import differentiable, named_tensors
from gradscope.target.losses.made_up import MadeUpLoss, Term, kind_of
from gradscope.target.losses.own import find_own, is_loss_beside, own_loss
from gradscope.target.losses.reach import covering
from gradscope.target.pick import attribute, is_criterion
from gradscope.target.sandbox import user_code
from gradscope.target.subject import Batch, Origin

FUNCTION_NAMES = ("loss", "loss_fn", "compute_loss", "loss_function", "get_loss", "criterion", "objective")


@dataclass(frozen=True)
class FoundLoss:
    """A loss of (output, batch) and where it is from."""

    loss: Loss
    origin: Origin


def given_loss(text: str, targets: Targets | None) -> FoundLoss:
    """Return the loss that ``--loss file:function`` names.

    Raises:
        LossError: If there is none, or it cannot be called.
    """
    module, attr, where = code_at(text, "--loss")
    try:
        value = attribute(module, attr, where)
    except TargetError as error:
        raise LossError(f"--loss {text}: {error.what}", rule=error.rule) from error
    if isinstance(value, type) and issubclass(value, nn.Module):
        with user_code(f"Building {attr} in {where}", folder_of(module), LossError):
            value = value()
    if not callable(value):
        raise LossError(
            f"--loss {text}: {attr} is a {type(value).__name__}.", rule="It is called as loss(output, batch)."
        )
    return FoundLoss(adapted(value, targets, f"{attr} in {where}"), Origin(f"{attr} in {where} (--loss)"))


def function_named_loss(namespace: Mapping[str, Any], where: str, targets: Targets | None) -> FoundLoss | None:
    """Return ``loss(output, batch)`` of the user's file, which wins over what the model returns."""
    value = namespace.get("loss")
    return _usable(value, targets, "loss", where) if inspect.isroutine(value) else None


def named_criterion(namespace: Mapping[str, Any], where: str, targets: Targets | None) -> FoundLoss | None:
    """Return the loss function or criterion object that the user's file offers under another name, if it does."""
    for name, value in namespace.items():
        is_usual = name in FUNCTION_NAMES and callable(value) and not isinstance(value, type)
        if (is_usual or (isinstance(value, nn.Module) and is_criterion(value))) and (
            found := _usable(value, targets, name, where)
        ):
            return found
    return None


def own(output: Any) -> FoundLoss | None:
    """Return the loss that the model's output carries, if it does."""
    found = find_own(output)
    return FoundLoss(own_loss, Origin(found[0])) if found else None


def chosen(output: Any, batch: Batch, targets: Targets | None) -> FoundLoss | None:
    """Return a usual loss for the output and the batch's own target, if their shapes fit one."""
    if targets is None:
        return None
    found = chosen_loss(prediction_in(output), targets(batch))
    if found is None:
        return None
    name, pair = found
    return FoundLoss(
        lambda out, b: pair(prediction_in(out), targets(b)),
        Origin(
            f"{name} of the output and the batch's own target, chosen by their shapes; --loss file:function gives yours"
        ),
    )


def made_up(output: Any, batch: Batch, model: nn.Module) -> FoundLoss:
    """Return a loss made up for the output.

    Raises:
        LossError: If nothing in the output depends on a parameter.
    """
    has_own = find_own(output) is not None  # to which this one is added
    outputs = {
        path: tensor
        for path, tensor in differentiable(output).items()
        if (tensor.is_floating_point() or tensor.is_complex()) and not (has_own and is_loss_beside(path, tensor))
    }
    trainable = [parameter.requires_grad for parameter in model.parameters()]
    if not outputs and trainable and not any(trainable):
        raise LossError(
            "None of the model's parameters is trainable: all have requires_grad=False.",
            hint="Unfreeze some, or give an argument of the model's that does (-a key=value).",
        )
    if not outputs:
        raise LossError(
            "Nothing in the model's output depends on a trainable parameter.",
            rule=_why_none(output),
            hint="Check for .detach(), torch.no_grad(), argmax, or requires_grad=False on every parameter.",
        )
    outputs = {path: tensor for path, tensor in outputs.items() if not _is_masked(tensor)} or outputs
    loss = MadeUpLoss([Term(path, kind_of(outputs[path], batch)) for path in covering(outputs, model)])
    return FoundLoss(loss, Origin(loss.describe(output), synthetic=True))


def _why_none(output: Any) -> str:
    """Say what the outputs are where none has a gradient: whole numbers, or cut off."""
    tensors = [(path or "the output", tensor) for path, tensor in named_tensors(output)]
    whole = [path for path, tensor in tensors if not tensor.is_floating_point() and not tensor.is_complex()]
    cut = [path for path, tensor in tensors if path not in whole]
    said = []
    if whole:
        said.append(f"Whole numbers ({', '.join(whole)}: codes, places, counts) have no gradient.")
    if cut:
        said.append(f"{', '.join(cut)} was computed without gradients, or from what does not train.")
    return " ".join(said) or "At least one output must be a floating tensor with a gradient."


def _is_masked(tensor: torch.Tensor) -> bool:
    """Whether an output holds infinities and no NaN: scores of what must not be chosen, which no loss compares."""
    return bool(tensor.detach().isinf().any()) and not bool(tensor.detach().isnan().any())


def _usable(value: Callable[..., Any], targets: Targets | None, name: str, where: str) -> FoundLoss | None:
    """A criterion without a target to compare with is no loss for this batch: look further."""
    label = f"{name}{'()' if not isinstance(value, nn.Module) else ''} in {where}"
    try:
        return FoundLoss(adapted(value, targets, label), Origin(label))
    except LossError:
        return None
