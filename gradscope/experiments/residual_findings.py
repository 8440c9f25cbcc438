"""What the residual experiment measures."""

from __future__ import annotations

from dataclasses import dataclass

from gradscope.experiments.training import History

VOCAB = 32
LAYERS = 10
"""The tutorial's depth."""
LR = 1e-3


@dataclass(frozen=True)
class Start:
    """One untrained network."""

    decades: float
    largest_gradient: float
    cosine: float
    query_to_value: float


@dataclass(frozen=True)
class Run:
    """One trained network, with its gradients on the way."""

    history: History
    profiles: dict[int, list[float]]
    largest: dict[int, float]


@dataclass(frozen=True)
class Findings:
    """Everything the experiment measured.

    Attributes:
        starts: Untrained networks by wiring, one per seed.
        runs: The two trained networks.
        shallow: Training without skips by number of layers.
        growth: D by wiring, init and layers.
    """

    starts: dict[str, list[Start]]
    runs: dict[str, Run]
    shallow: dict[int, History]
    growth: dict[tuple[str, str, int], float]
