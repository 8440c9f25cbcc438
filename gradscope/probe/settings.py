"""What to measure, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["params", "default", "deep"]

DEFAULT_WATCHED_STEPS = (0, 3, 10)
"""Step 0 for theory, 3 for zero-initialised designs, 10 for the collapse that norms hide (docs/decisions/0002)."""


@dataclass(frozen=True)
class ProbeSettings:
    """How a subject is stepped and watched.

    Attributes:
        num_steps: Optimizer steps to take in all.
        watched_steps: Which of them are measured; the others run bare.
        optimizer: adam, adamw, sgd, none (no update between steps) or subject (the one its file offers).
        lr: Learning rate of that optimizer.
        device: auto (CUDA where there is one), cpu, cuda, cuda:N.
        dtype: None keeps the model's own; else float32, bfloat16, float16 or float64, for parameters and floating
            inputs.
        mode: keep the mode the factory left, or train / eval.
        seed: Set right before the first forward (and, by the loader, before the model is built); None leaves it.
        level: params (parameter gradients only), default, or deep (dear measurements too).
        jacobian: Whether to measure the Jacobian anisotropy.
        keep_steps: Leave the trained parameters in the model instead of restoring it.
    """

    num_steps: int = DEFAULT_WATCHED_STEPS[-1] + 1
    watched_steps: tuple[int, ...] = DEFAULT_WATCHED_STEPS
    optimizer: str = "adam"
    lr: float = 1e-3
    device: str = "auto"
    dtype: str | None = None
    mode: Literal["keep", "train", "eval"] = "keep"
    seed: int | None = 0
    level: Level = "default"
    jacobian: bool = True
    keep_steps: bool = False
