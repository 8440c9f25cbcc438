"""How many values each normalisation statistic is taken over; 1 or 2 make it noise, or erase the signal.

BatchNorm in training takes a channel's statistics over batch and positions, InstanceNorm over positions, GroupNorm over
a group's channels and positions, LayerNorm and RMSNorm over the normalised axes.

Cost: default level; nothing on the device, shapes only.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from gradscope.probe.signals.observer import CallKey, Observer, first_tensor


class Population(Observer):
    """batch_samples of every call of a normalisation layer; couples_samples of those that take them over the batch."""

    def wants(self, name: str, module: nn.Module, role: str) -> bool:  # noqa: D102
        return isinstance(module, _BatchNorm | _InstanceNorm | nn.GroupNorm | nn.LayerNorm | nn.RMSNorm)

    def forward(self, call: CallKey, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: D102
        x = first_tensor(output)
        count = None if x is None or x.numel() == 0 else statistic_size(module, x)
        if count is not None:
            self.readings.add("batch_samples", call.module, call.call, float(count))
            if isinstance(module, _BatchNorm) and not isinstance(module, _InstanceNorm):
                self.readings.add("couples_samples", call.module, call.call, 1.0)


def statistic_size(module: nn.Module, x: Tensor) -> int | None:
    """Return the number of values one statistic of a normalisation layer is taken over, None if it takes none."""
    if isinstance(module, _InstanceNorm):
        takes = module.training or not module.track_running_stats
        return math.prod(x.shape[2:]) if takes else None
    if isinstance(module, _BatchNorm):
        takes = module.training or module.running_mean is None
        return x.numel() // x.shape[1] if takes and x.dim() > 1 else None
    if isinstance(module, nn.GroupNorm):
        return math.prod(x.shape[1:]) // module.num_groups
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return math.prod(module.normalized_shape)
    return None
