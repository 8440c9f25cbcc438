"""Other initial weights, and other activations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import nn

from gradscope.remedy.places import Places

MAPS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""What is drawn anew: the maps whose fan-in the initialisations are about."""

Apply = Callable[[nn.Module, Places, ExitStack], int]
"""Changes a model, leaves how to undo it, and returns the number of places."""


def redraw(draw: Callable[[torch.Tensor], object]) -> Apply:
    """Make the remedy that draws every linear map and convolution anew, with biases at 0."""

    def apply(model: nn.Module, places: Places, undo: ExitStack) -> int:
        if not places.redrawable:
            return 0
        maps = [module for module in model.modules() if isinstance(module, MAPS)]
        for module in maps:
            for parameter in module.parameters(recurse=False):
                undo.callback(parameter.data.copy_, parameter.data.clone())
            draw(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        return len(maps)

    return apply


def draw_he(weight: torch.Tensor) -> object:
    """N(0, 2/fan_in)."""
    return nn.init.kaiming_normal_(weight, nonlinearity="relu")


def replace_saturating(model: nn.Module, places: Places, undo: ExitStack) -> int:
    """Put GELU in the place of sigmoid and tanh."""
    for path in places.saturating:
        parent, _, name = path.rpartition(".")
        holder = model.get_submodule(parent)
        undo.callback(setattr, holder, name, getattr(holder, name))
        setattr(holder, name, nn.GELU())
    return len(places.saturating)


def gelu_and_he(model: nn.Module, places: Places, undo: ExitStack) -> int:
    """Do both, where there is a place for both."""
    if not places.redrawable or not places.saturating:
        return 0
    redraw(draw_he)(model, places, undo)
    return replace_saturating(model, places, undo)
