"""Initial weights: one scheme for every linear map, then what the branch initialisation changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from gradscope.variants.depth_scales import fixup_factor, inverse_sqrt_sublayers
from gradscope.variants.stack import Stack
from gradscope.variants.sublayer import Sublayer
from gradscope.variants.wiring import Wiring

GPT2_STD = 0.02
"""Standard deviation of every weight of GPT-2 (Radford 2019)."""

LAYERS_IN_BRANCH = 2
"""Weights in a row in a branch (value and output; fc1 and fc2): Fixup's m."""

AMPLIFIED = ("v", "out", "fc1", "fc2", "gate")
"""The maps whose size sets the size of a branch (DeepNet, Magneto); queries and keys keep gain 1."""

LAST = ("out", "fc2")
"""The last map of a branch."""


def initialise_linear(linear: nn.Linear, scheme: str) -> None:
    """Draw one linear map by the scheme; biases are zero except in PyTorch's own scheme."""
    match scheme:
        case "xavier":
            nn.init.xavier_normal_(linear.weight)
        case "he":
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        case "gpt2":
            nn.init.normal_(linear.weight, std=GPT2_STD)
        case _:
            linear.reset_parameters()
            return
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def initialise(model: nn.Module, wiring: Wiring, stacks: Iterable[tuple[nn.Module, Stack]]) -> None:
    """Draw every weight of a Transformer, then apply the branch initialisation stack by stack."""
    embedding_std = GPT2_STD if wiring.init == "gpt2" else wiring.embedding_std
    for name, parameter in model.named_parameters():
        if name.endswith("positions"):
            nn.init.normal_(parameter, std=wiring.position_std * embedding_std)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            initialise_linear(module, wiring.init)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=embedding_std)
    for module in model.modules():
        if isinstance(module, Sublayer) and module.gate is not None:
            nn.init.constant_(module.gate.bias, wiring.gate_bias)
    for blocks, stack in stacks:
        _initialise_branches(blocks, stack, wiring)
    if wiring.branch_init == "fixup" and isinstance(model.head, nn.Linear):
        _zero(model.head)


@torch.no_grad()
def _initialise_branches(blocks: nn.Module, stack: Stack, wiring: Wiring) -> None:
    for name, linear in branch_maps(blocks):
        match wiring.branch_init:
            case "gpt2" if name in LAST:
                linear.weight *= inverse_sqrt_sublayers(stack.num_blocks)
            case "deepnorm" if name in AMPLIFIED:
                linear.weight *= stack.deepnorm.beta
            case "sub-ln" if name in AMPLIFIED:
                linear.weight *= stack.sub_ln_gain
            case "zero-last" if name in LAST:
                _zero(linear)
            case "fixup" if name in LAST:
                _zero(linear)
            case "fixup" if name in AMPLIFIED:
                linear.weight *= fixup_factor(stack.num_sublayers, LAYERS_IN_BRANCH)


def branch_maps(blocks: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Yield the linear maps inside the branches, each with its short name (q, k, v, out, fc1, fc2, gate)."""
    for path, module in blocks.named_modules():
        parent, _, name = path.rpartition(".")
        in_branch = not isinstance(blocks.get_submodule(parent), Sublayer) if path else False
        if isinstance(module, nn.Linear) and in_branch:
            yield name, module


def _zero(linear: nn.Linear) -> None:
    nn.init.zeros_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
