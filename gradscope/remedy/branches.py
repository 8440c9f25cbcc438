"""Changes to residual branches: how large they are, where they start, and what they read."""

from __future__ import annotations

import math
from contextlib import ExitStack

import torch
from torch import nn

from gradscope.remedy.hooking import change_input, change_output, normalised
from gradscope.remedy.places import Places

LEARNT = "gradscope_branch_scale"
"""Name of the parameter that scales a branch while it is tried."""


def scale_branches(model: nn.Module, places: Places, undo: ExitStack) -> int:
    """Multiply every branch by 1/sqrt(their number), which keeps the stream's variance bounded."""
    ends = _ends(model, places)
    for end in ends:
        change_output(end, lambda f: f / math.sqrt(len(ends)), undo)
    return len(ends)


def start_at_zero(model: nn.Module, places: Places, undo: ExitStack) -> int:
    """Multiply every branch by a learnt scalar that starts at 0 (ReZero)."""
    ends = _ends(model, places)
    for end in ends:
        weight = next(end.parameters(), torch.zeros(()))
        scale = nn.Parameter(torch.zeros((), dtype=weight.dtype, device=weight.device))
        end.register_parameter(LEARNT, scale)
        undo.callback(end._parameters.pop, LEARNT)
        change_output(end, lambda f, scale=scale: scale * f, undo)  # type: ignore[misc]
    return len(ends)


def norm_before(model: nn.Module, places: Places, undo: ExitStack) -> int:
    """Norm what every branch reads, x + f(norm(x)), leave the stream alone, and norm it once at its end.

    Norms that stand on the stream are passed by, but for the last.
    """
    stream_norms = list(dict.fromkeys(branch.norm_after for branch in places.branches if branch.norm_after))
    bare = [branch for branch in places.branches if not branch.normed]
    for name in stream_norms[:-1]:
        _pass_by(model.get_submodule(name), undo)
    for branch in bare:
        _norm_entry(model, branch.modules, places, undo)
    return len(bare)


def _ends(model: nn.Module, places: Places) -> list[nn.Module]:
    return [model.get_submodule(name) for name in dict.fromkeys(branch.end for branch in places.branches)]


def _norm_entry(model: nn.Module, branch: tuple[str, ...], places: Places, undo: ExitStack) -> None:
    """Norm the stream for each module of the branch that reads it: query, key and value maps as well as one entry."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    channels_first = branch[0] in places.convolutions

    def enter(x: torch.Tensor) -> torch.Tensor:
        seen[:] = [(x, normalised(x, channels_first=channels_first))]
        return seen[0][1]

    def again(x: torch.Tensor) -> torch.Tensor:
        return seen[0][1] if seen and x is seen[0][0] else x

    for place, name in enumerate(branch):
        change_input(model.get_submodule(name), again if place else enter, undo)


def _pass_by(norm: nn.Module, undo: ExitStack) -> None:
    undo.callback(norm.register_forward_hook(lambda _module, inputs, _output: inputs[0].clone()).remove)
