"""Skips round the blocks of a plain stack."""

from __future__ import annotations

from contextlib import ExitStack

import torch
from torch import nn

from gradscope.remedy.hooking import change_input, change_output, normalised
from gradscope.remedy.places import Places


def add_skips(model: nn.Module, places: Places, undo: ExitStack) -> int:
    """Add a skip round everything from one block's input to the next one's, x + f(x), where shapes allow it."""
    return _carry(model, places, undo, normed=False)


def add_normed_skips(model: nn.Module, places: Places, undo: ExitStack) -> int:
    """The same with a norm on the branch, x + f(norm(x)), and one after the last block."""
    return _carry(model, places, undo, normed=True)


def _carry(model: nn.Module, places: Places, undo: ExitStack, *, normed: bool) -> int:
    names = places.plain_blocks
    stream: list[torch.Tensor] = []

    def shown(x: torch.Tensor, name: str) -> torch.Tensor:
        return normalised(x, channels_first=name in places.convolutions) if normed else x

    def enter(x: torch.Tensor, name: str) -> torch.Tensor:
        if name == names[0]:
            stream.clear()
        stream[:] = [_sum(stream, x)]
        return shown(stream[0], name)

    def leave(x: torch.Tensor) -> torch.Tensor:
        return shown(_sum(stream, x), names[-1])

    for name in names:
        change_input(model.get_submodule(name), lambda x, name=name: enter(x, name), undo)  # type: ignore[misc]
    if names:
        change_output(model.get_submodule(names[-1]), leave, undo)
    return len(names)


def _sum(stream: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return x + stream[0] if stream and stream[0].shape == x.shape else x
