"""A model's own loss that is an auxiliary one: it leaves out a part of what the model puts out.

A vector-quantised autoencoder returns the loss of its code book beside the reconstruction, a mixture of experts the
loss of its router beside the logits. Whoever trains it adds a loss of the main output, and so does a step here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gradscope.target.losses.adapt import MAIN_OUTPUTS, Loss
from gradscope.target.losses.find import FoundLoss
from gradscope.target.losses.leaves import differentiable
from gradscope.target.losses.own import find_own, is_loss_beside
from gradscope.target.losses.reach import reached
from gradscope.target.subject import Origin


def completed(
    own: FoundLoss | None, main: Callable[[], FoundLoss | None], output: Any, model: nn.Module
) -> FoundLoss | None:
    """Return a model's own loss where that holds on to all of the main output; else a loss of the latter, or their sum.

    Args:
        own: The loss in the output, if there is one.
        main: Finds a loss of the main output.
        output: What one forward returned.
        model: The model that was run.
    """
    if own is not None and not _is_auxiliary(output, model):
        return own
    found = main()
    if own is None or found is None:
        return own or found
    text = f"{own.origin.text}, in which some parameters have no part, plus {found.origin.text}"
    sum_of_both: Loss = lambda out, batch: own.loss(out, batch) + found.loss(out, batch)  # noqa: E731
    return FoundLoss(sum_of_both, Origin(text, synthetic=found.origin.synthetic))


def _is_auxiliary(output: Any, model: nn.Module) -> bool:
    """Whether the main output depends on parameters that the loss in the output does not depend on."""
    found, main = find_own(output), _main_output(output)
    if found is None or main is None:
        return False
    held = reached({"": found[1]}, model)
    trainable = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    return not held >= trainable and not held >= reached({"": main}, model)


def _main_output(output: Any) -> torch.Tensor | None:
    """Return the output that is called the main one, else the first that is no loss."""
    tensors = {path: tensor for path, tensor in differentiable(output).items() if not is_loss_beside(path, tensor)}
    return next((tensors[name] for name in MAIN_OUTPUTS if name in tensors), next(iter(tensors.values()), None))
