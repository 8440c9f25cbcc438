"""What an optimizer step really changes: the norm of every weight before it, and of the difference it makes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradscope.probe.listing import named_parameters
from gradscope.probe.watching.rows import Handle, Rows

_AT_ONCE = 1 << 18
"""Elements of differences that may wait to be measured together: 1 MB."""


class Updates:
    """Weight and update norms around one optimizer step.

    Args:
        model: Whose weights.
        rows: Where the numbers go.
        changes: Whether a step follows whose changes are wanted.
        spare: Weights kept of an earlier step, whose memory may be written over.
    """

    def __init__(
        self, model: nn.Module, rows: Rows, *, changes: bool = True, spare: dict[str, torch.Tensor] | None = None
    ) -> None:
        self._rows = rows
        self._parameters = [(name, p) for name, p in named_parameters(model) if not (is_lazy(p) or p.is_meta)]
        self.before = {
            name: _copy(p.detach(), (spare or {}).get(name))
            for name, p in self._parameters
            if changes and p.requires_grad
        }
        """The weights before the step."""
        self.weights: dict[str, Handle | None] = {}
        self.changes: dict[str, Handle | None] = {}
        norms = rows.norms([parameter.detach() for _, parameter in self._parameters])
        for (name, _), handle in zip(self._parameters, norms, strict=True):
            self.weights[name] = handle

    def after(self) -> None:
        """Take the differences, once the optimizer has stepped."""
        with torch.no_grad():
            waiting: dict[str, torch.Tensor] = {}
            num_elements = 0
            for name, parameter in self._parameters:
                before = self.before.get(name)
                if before is not None:
                    waiting[name] = parameter.detach() - before
                    num_elements += before.numel()
                    if num_elements > _AT_ONCE:
                        self._measure(waiting)
                        num_elements = 0
            self._measure(waiting)

    def _measure(self, differences: dict[str, torch.Tensor]) -> None:
        self.changes.update(zip(differences, self._rows.norms(list(differences.values())), strict=True))
        differences.clear()


def _copy(weight: torch.Tensor, spare: torch.Tensor | None) -> torch.Tensor:
    """Copy a weight, into memory that is there where it fits: new memory costs the CPU more than the copy itself."""
    if spare is None or spare.shape != weight.shape or spare.dtype != weight.dtype or spare.device != weight.device:
        return weight.clone()
    return spare.copy_(weight)


def steps_in_backward(model: nn.Module) -> bool:
    """Tell whether an optimizer may step as soon as a gradient is complete, inside the backward."""
    return any(getattr(parameter, "_post_accumulate_grad_hooks", None) for _, parameter in named_parameters(model))
