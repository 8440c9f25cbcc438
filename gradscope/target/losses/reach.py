"""Which outputs a loss must hold on to so that every parameter that takes part gets a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradscope.probe.deep import make_room

PREFERRED = (
    "logits",
    "prediction",
    "predictions",
    "pred",
    "out",
    "output",
    "last_hidden_state",
    "sample",
    "reconstruction",
)


def covering(outputs: dict[str, torch.Tensor], model: nn.Module) -> list[str]:
    """Return the paths of few outputs that together reach all the parameters that any output reaches.

    One output that reaches everything is taken alone: adding hidden states would be deep supervision, which hides
    vanishing gradients. A second head that the first output does not reach is added. Among outputs that reach the same
    parameters the one with the longest computation wins: the last of an iterative model's refinements.
    """
    parameters = {id(p) for p in model.parameters() if p.requires_grad}
    behind = {path: _behind(tensor, parameters) for path, tensor in outputs.items()}
    reach = {path: found for path, (found, _) in behind.items()}
    order = sorted(outputs, key=lambda path: (-len(reach[path]), _rank(path), -behind[path][1]))
    chosen: list[str] = []
    covered: set[int] = set()
    for path in order:
        if not chosen or reach[path] - covered:
            chosen.append(path)
            covered |= reach[path]
    return chosen


def reached(outputs: dict[str, torch.Tensor], model: nn.Module) -> set[int]:
    """Return the ids of the trainable parameters that some output depends on."""
    parameters = {id(p) for p in model.parameters() if p.requires_grad}
    return set().union(*(_behind(tensor, parameters)[0] for tensor in outputs.values()))


def _rank(path: str) -> int:
    last = path.rsplit(".", 1)[-1]
    return PREFERRED.index(last) if last in PREFERRED else len(PREFERRED)


def _behind(tensor: torch.Tensor, parameters: set[int]) -> tuple[set[int], int]:
    """Walk the autograd graph behind a tensor; return the parameters at its leaves and the number of its nodes."""
    if tensor.grad_fn is None:
        return {id(tensor)} & parameters, 0
    found: set[int] = set()
    seen: set[Any] = {tensor.grad_fn}
    stack: list[Any] = [tensor.grad_fn]
    while stack:
        node = stack.pop()
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) in parameters:
            found.add(id(variable))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                stack.append(following)
    make_room(len(seen))
    return found, len(seen)
