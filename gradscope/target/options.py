"""What the user asked for besides the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal["keep", "train", "eval"]


@dataclass(frozen=True)
class Options:
    """The arguments of `load`, gathered; see there."""

    arguments: dict[str, Any]
    inputs: str | None
    loss: str | None
    input_spec: str | None
    weights: str | None
    mode: Mode
    allow_synthetic: bool
