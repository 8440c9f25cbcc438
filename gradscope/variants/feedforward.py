"""The feed-forward branch of a block."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from gradscope.variants.norms import make_norm, through
from gradscope.variants.wiring import Wiring

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


class FeedForward(nn.Module):
    """fc2(act(fc1(x))), with a norm before fc2 where the variant has an inner norm."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        hidden = wiring.hidden_width
        self.fc1 = nn.Linear(wiring.d_model, hidden, bias=wiring.bias)
        self.act = _ACTIVATIONS[wiring.activation]()
        self.norm = None if wiring.inner_norm == "none" else make_norm(wiring.norm, hidden, wiring.eps)
        self.fc2 = nn.Linear(hidden, wiring.d_model, bias=wiring.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Widen, bend, narrow."""
        narrowed: torch.Tensor = self.fc2(through(self.norm, self.act(self.fc1(x))))
        return narrowed


class SwiGLU(nn.Module):
    """fc2(silu(gate(x)) * fc1(x)) (Shazeer 2020)."""

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        hidden = wiring.hidden_width
        self.gate = nn.Linear(wiring.d_model, hidden, bias=wiring.bias)
        self.fc1 = nn.Linear(wiring.d_model, hidden, bias=wiring.bias)
        self.norm = None if wiring.inner_norm == "none" else make_norm(wiring.norm, hidden, wiring.eps)
        self.fc2 = nn.Linear(hidden, wiring.d_model, bias=wiring.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Widen, gate, narrow."""
        narrowed: torch.Tensor = self.fc2(through(self.norm, F.silu(self.gate(x)) * self.fc1(x)))
        return narrowed


def make_feedforward(wiring: Wiring) -> FeedForward | SwiGLU:
    """Make the branch that the wiring's activation asks for."""
    return SwiGLU(wiring) if wiring.activation == "swiglu" else FeedForward(wiring)
