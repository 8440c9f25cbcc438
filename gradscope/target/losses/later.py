"""For a model that cannot be tried beforehand: decide on the loss when its first output is there."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradscope.target.losses.adapt import Loss, Targets
from gradscope.target.losses.auxiliary import completed
from gradscope.target.losses.find import FoundLoss, chosen, made_up, own
from gradscope.target.subject import Batch, Origin


def decided_later(model: nn.Module, targets: Targets | None) -> FoundLoss:
    """Return a loss that is settled by the first output it sees."""
    settled: list[Loss] = []

    def decided(output: Any, batch: Batch) -> FoundLoss:
        def main() -> FoundLoss:
            return chosen(output, batch, targets) or made_up(output, batch, model)

        found = completed(own(output), main, output, model)
        assert found is not None  # one is always made up
        return found

    def loss(output: Any, batch: Batch) -> torch.Tensor:
        if not settled:
            settled.append(decided(output, batch).loss)
        return settled[0](output, batch)

    return FoundLoss(
        loss,
        Origin(
            "the model's own if its output has one, else made up (the model cannot be copied to look beforehand)",
            synthetic=True,
        ),
    )
