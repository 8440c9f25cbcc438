"""The loss that the model computes itself: a scalar output, ``output.loss``, or ``training_step``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from gradscope.errors import LossError
from gradscope.target.inputs.arrange import unwrapped
from gradscope.target.losses.leaves import named_tensors
from gradscope.target.subject import Batch

LOSS_NAMES = ("loss", "total_loss", "loss_total")


def own_loss(output: Any, batch: Batch = None) -> torch.Tensor:
    """Return the loss in an output.

    Raises:
        LossError: If it has none (on the first batch it had one).
    """
    found = find_own(output)
    if found is None:
        raise LossError("The model's output holds no scalar loss on this batch.", rule="It did on the first one.")
    return found[1]


def find_own(output: Any) -> tuple[str, torch.Tensor] | None:
    """Find the loss in an output, with words for where it was; None where there is none.

    A dictionary of nothing but scalar losses, such as a detector gives while training, is summed.
    """
    if isinstance(output, torch.Tensor):
        return ("the model's scalar output", output) if _is_loss(output) else None
    for name in LOSS_NAMES:
        value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return f"output.{name} of the model", value if value.dim() == 0 else value.float().mean()
    if isinstance(output, Mapping) and output and all(_is_scalar(value) for value in output.values()):
        losses = [value for value in output.values() if value.requires_grad]
        if losses:
            return f"the sum of the model's own losses ({', '.join(map(str, output))})", torch.stack(losses).sum()
    if isinstance(output, tuple | list):
        scalars = [(name, t) for name, t in named_tensors(list(output)) if _is_loss(t) and "." not in name]
        if len(scalars) == 1:
            return f"output[{scalars[0][0]}] of the model, a scalar", scalars[0][1]
    return None


def is_loss_beside(path: str, tensor: torch.Tensor) -> bool:
    """Whether a tensor in an output that has a loss is a loss itself, be it one of each sample."""
    return tensor.dim() == 0 or path in LOSS_NAMES


def has_training_step(model: nn.Module) -> bool:
    """Whether a model brings its own ``training_step(batch, batch_idx)``, as a LightningModule does."""
    step = getattr(type(unwrapped(model)), "training_step", None)
    return step is not None and not step.__module__.startswith(("lightning", "pytorch_lightning"))


def run_training_step(model: nn.Module, batch: Batch) -> Any:
    """Run ``training_step`` on one batch, with the batch number if it wants one."""
    step: Any = unwrapped(model).training_step
    takes = step.__code__.co_argcount if hasattr(step, "__code__") else 3
    return step(batch, 0) if takes > 2 else step(batch)  # noqa: PLR2004  # self and batch


def _is_scalar(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _is_loss(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 0 and tensor.requires_grad and not tensor.is_complex()
