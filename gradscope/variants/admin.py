"""Admin: skip weights set from one profiling forward (Liu 2020, arXiv:2004.08249, section 4.3)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from gradscope.variants.sublayer import Sublayer


@torch.no_grad()
def set_skip_weights(model: nn.Module, blocks: nn.Module, batch: tuple[torch.Tensor, ...]) -> None:
    """Set w_i of LN(w_i x + f_i(x)) to sqrt(1 + sum of Var f_j over the sublayers j before i)."""
    sublayers = [module for module in blocks.modules() if isinstance(module, Sublayer)]
    variances: dict[int, float] = {}

    def keep(number: int) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
            variances[number] = float(output.var())

        return hook

    with ExitStack() as hooks:
        for number, sublayer in enumerate(sublayers):
            hooks.callback(sublayer.branch.register_forward_hook(keep(number)).remove)
        model.eval()
        model(*batch)
        model.train()
    total = 1.0
    for number, sublayer in enumerate(sublayers):
        assert isinstance(sublayer.skip_scale, nn.Parameter)
        sublayer.skip_scale.fill_(total**0.5)
        total += variances[number]
