"""One entry of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Family = Literal["transformer", "vision-transformer", "encoder-decoder", "resnet", "mlp", "recurrent"]


@dataclass(frozen=True)
class Variant:
    """A built-in model.

    Attributes:
        name: How it is asked for: ``builtin:NAME``.
        description: One line: what is wired how.
        paper: Where it comes from, with its arXiv number where it has one.
        family: Which builder understands `parts`.
        parts: What sets it apart from the family's plain model; a user's arguments override them.
        aliases: Other names it answers to.
        expected_decades: Measured D = log10(|g_0| / |g_L|) at initialisation by init scheme, at `EXPECTED_DEPTHS`
            blocks, width 64 (mean over seeds); absent where it was not measured.
        sites_per_block: Residual additions that one block executes.
        extra_sites: Residual additions outside the blocks.
    """

    name: str
    description: str
    paper: str
    family: Family
    parts: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    expected_decades: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    sites_per_block: int = 0
    extra_sites: int = 0


EXPECTED_DEPTHS = (10, 24, 48)
"""Block counts at which `expected_decades` are given."""
