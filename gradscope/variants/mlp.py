"""Fully connected networks of equal layers: the ones theory speaks of. Shapes: B samples, D width."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gradscope.variants.mlp_plan import MlpPlan
from gradscope.variants.norms import make_norm, through
from gradscope.variants.plan import require

_ACTIVATIONS: dict[str, Callable[[], nn.Module] | None] = {
    "linear": None,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
}


class PlainLayer(nn.Module):
    """act(norm(linear(x)))."""

    def __init__(self, plan: MlpPlan) -> None:
        super().__init__()
        self.linear = nn.Linear(plan.d_model, plan.d_model)
        self.norm = make_norm(plan.norm, plan.d_model)
        make_activation = _ACTIVATIONS[plan.activation]
        self.act = None if make_activation is None else make_activation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map, normalise, bend."""
        return through(self.act, through(self.norm, self.linear(x)))


class ResidualLayer(nn.Module):
    """x + scale * linear(act(norm(x))): a clean skip round a pre-activated map."""

    def __init__(self, plan: MlpPlan) -> None:
        super().__init__()
        self.norm = make_norm(plan.norm, plan.d_model)
        make_activation = _ACTIVATIONS[plan.activation]
        self.act = None if make_activation is None else make_activation()
        self.linear = nn.Linear(plan.d_model, plan.d_model)
        self.scale: float | nn.Parameter | None = None
        if plan.skip == "scaled":
            self.scale = float(plan.layers**-0.5)
        if plan.skip == "rezero":
            self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the branch to the stream."""
        f = self.linear(through(self.act, through(self.norm, x)))
        added: torch.Tensor = x + (f if self.scale is None else self.scale * f)
        return added


class Mlp(nn.Module):
    """B x D to logits (B x classes)."""

    def __init__(self, plan: MlpPlan) -> None:
        super().__init__()
        require(plan.layers >= 1 and plan.d_model >= 1, "layers and d_model must be at least 1.", "")
        kind = PlainLayer if plan.skip == "none" else ResidualLayer
        self.layers = nn.ModuleList(kind(plan) for _ in range(plan.layers))
        normed_end = plan.norm != "none" and plan.skip != "none"
        self.norm = make_norm(plan.norm, plan.d_model) if normed_end else None
        self.head = nn.Linear(plan.d_model, plan.classes)
        for layer in self.layers:
            assert isinstance(layer.linear, nn.Linear)
            _draw(layer.linear, plan)

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Classify."""
        x = x_BD
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(through(self.norm, x))
        return logits


def _draw(linear: nn.Linear, plan: MlpPlan) -> None:
    match plan.init:
        case "normal":
            nn.init.normal_(linear.weight, std=(plan.weight_variance / linear.in_features) ** 0.5)
            nn.init.normal_(linear.bias, std=plan.bias_variance**0.5)
            return
        case "he":
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        case "xavier":
            nn.init.xavier_normal_(linear.weight)
        case "orthogonal":
            nn.init.orthogonal_(linear.weight)
        case _:
            return
    nn.init.zeros_(linear.bias)
