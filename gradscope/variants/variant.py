"""One entry of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gradscope.variants.expected import EXPECTED, Expected
from gradscope.variants.expected_networks import EXPECTED_NETWORKS

Family = Literal["transformer", "vision-transformer", "resnet", "block-stack", "mlp", "recurrent"]


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
        sites_per_block: Residual additions that one block executes, with its shortcuts on; an encoder-decoder's block
            is one of either side.
    """

    name: str
    description: str
    paper: str
    family: Family
    parts: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    sites_per_block: int = 0

    def expected_sites(self, num_blocks: int) -> int:
        """Residual additions that one forward executes with so many blocks."""
        return self.sites_per_block * num_blocks

    @property
    def expected(self) -> Mapping[str, Expected]:
        """Expected D at initialisation by init scheme; empty for networks of a fixed depth and through time."""
        return EXPECTED.get(self.name) or EXPECTED_NETWORKS.get(self.name, {})
