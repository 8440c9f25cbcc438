"""Recurrent networks unrolled cell by cell, so that the gradient at every time step can be seen.

Shapes: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from gradscope.variants.plan import require


@dataclass(frozen=True)
class RecurrentPlan:
    """Everything that decides a recurrent network.

    Attributes:
        cell: Which recurrent cell.
        layers: Cells on top of each other.
        d_model: Width of embedding and state.
        vocab: Token ids.
        tokens: Length of the sequences.
        batch: Sequences per batch of the task.
        forget_bias: Added to the LSTM's forget gate at initialisation (Jozefowicz 2015 advise 1).
    """

    choices: ClassVar[dict[str, dict[str, str]]] = {
        "cell": {"lstm": "long short-term memory", "gru": "gated recurrent unit", "rnn": "tanh(W x + U h)"}
    }

    cell: str = "lstm"
    layers: int = 1
    d_model: int = 64
    vocab: int = 32
    tokens: int = 32
    batch: int = 32
    forget_bias: float = 0.0


_CELLS: dict[str, Callable[[int, int], nn.Module]] = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}


class Recurrent(nn.Module):
    """Token ids (B x T) to logits (B x vocab) after the last token."""

    def __init__(self, plan: RecurrentPlan) -> None:
        super().__init__()
        require(plan.layers >= 1 and plan.tokens >= 1, "layers and tokens must be at least 1.", "")
        self.embed = nn.Embedding(plan.vocab, plan.d_model)
        self.cells = nn.ModuleList(_CELLS[plan.cell](plan.d_model, plan.d_model) for _ in range(plan.layers))
        self.head = nn.Linear(plan.d_model, plan.vocab)
        for cell in self.cells:
            if isinstance(cell, nn.LSTMCell) and plan.forget_bias:
                # torch orders the gates input, forget, cell, output.
                cell.bias_hh.data[plan.d_model : 2 * plan.d_model] += plan.forget_bias

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Read the sequence, then answer."""
        x_BTD = self.embed(ids_BT)
        states: list[torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(self.cells)
        x = x_BTD[:, 0]
        for x_BD in x_BTD.unbind(dim=1):
            x = x_BD
            for depth, cell in enumerate(self.cells):
                state = cell(x, states[depth])
                states[depth] = state
                x = state[0] if isinstance(state, tuple) else state
        logits: torch.Tensor = self.head(x)
        return logits
