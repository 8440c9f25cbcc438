"""The named parts of a fully connected network, torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

TANH_CRITICAL_WEIGHT_VARIANCE = 1.76095
"""Weight variance times fan-in at which tanh neither orders nor amplifies at bias variance 0.05 (Schoenholz 2017)."""

TANH_CRITICAL_BIAS_VARIANCE = 0.05


@dataclass(frozen=True)
class MlpPlan:
    """Everything that decides a fully connected network.

    Attributes:
        layers: Hidden layers.
        d_model: Width of inputs and hidden layers.
        activation: After each linear map.
        init: How the maps are drawn.
        weight_variance: Replaces the variance times fan-in of init "normal"; 0 keeps 1.
        bias_variance: Variance of the biases of init "normal".
        skip: none, identity (x + f(x)) or scaled (x + f(x)/sqrt(layers)) or rezero.
        norm: Before the map in residual layers, between map and activation in plain ones.
        classes: Classes of the task.
        batch: Samples per batch of the task.
    """

    choices: ClassVar[dict[str, dict[str, str]]] = {
        "activation": {"linear": "none", "relu": "ReLU", "tanh": "tanh", "sigmoid": "sigmoid", "gelu": "GELU"},
        "init": {
            "pytorch": "what nn.Linear does",
            "normal": "N(0, weight_variance/fan_in), biases N(0, bias_variance)",
            "he": "N(0, 2/fan_in), biases 0",
            "xavier": "Xavier normal, biases 0",
            "orthogonal": "random orthogonal, biases 0",
        },
        "skip": {
            "none": "f(x)",
            "identity": "x + f(x)",
            "scaled": "x + f(x)/sqrt(layers)",
            "rezero": "x + a f(x), a learnt scalar from 0",
        },
        "norm": {"none": "no norm", "layer": "LayerNorm", "batch": "BatchNorm", "rms": "RMSNorm"},
    }

    layers: int = 24
    d_model: int = 64
    activation: str = "relu"
    init: str = "pytorch"
    weight_variance: float = 1.0
    bias_variance: float = 0.0
    skip: str = "none"
    norm: str = "none"
    classes: int = 10
    batch: int = 64
