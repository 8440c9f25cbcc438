"""The built-in models: each a few declarative parts, with the paper they come from.

The catalogue (`VARIANTS`) is torch-free; `build` and `subject` load torch when they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradscope.variants.catalog import VARIANTS, Variant, find

if TYPE_CHECKING:
    from torch import nn

    from gradscope.target.subject import Subject

__all__ = ["VARIANTS", "Variant", "build", "find", "subject"]


def build(name: str, **arguments: Any) -> nn.Module:
    """Build a variant by name.

    Args:
        name: A name of the catalogue; hyphens and underscores are the same.
        arguments: Sizes and parts to change, such as ``layers=48`` or ``norm="rms"``.

    Returns:
        The model, in train mode, drawn from the current global random state.

    Raises:
        TargetError: No such variant or argument, or a value that does not fit.

    >>> build("pre-ln", layers=2, d_model=16).num_layers
    2
    """
    from gradscope.variants.building import build_variant

    return build_variant(name, arguments)


def subject(name: str, arguments: Mapping[str, Any] | None = None, seed: int | None = 0) -> Subject:
    """Build a variant together with a small task it can learn.

    Args:
        name: A name of the catalogue.
        arguments: Sizes and parts to change.
        seed: Set before the model is built; None leaves torch's random state alone. The data do not depend on it.

    Returns:
        The subject, with fixed batches and cross-entropy loss.

    Raises:
        TargetError: No such variant or argument, or a value that does not fit.
    """
    from gradscope.variants.building import build_subject

    return build_subject(name, dict(arguments or {}), seed)
