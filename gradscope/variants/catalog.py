"""The catalogue of built-in models, torch-free."""

from __future__ import annotations

from gradscope.errors import TargetError
from gradscope.variants.catalog_networks import NETWORKS
from gradscope.variants.catalog_transformers import TRANSFORMERS
from gradscope.variants.nearest import canonical, nearest
from gradscope.variants.variant import Family, Variant

__all__ = ["VARIANTS", "Family", "Variant", "find", "names"]

VARIANTS: tuple[Variant, ...] = (*TRANSFORMERS, *NETWORKS)


def _index() -> dict[str, Variant]:
    index: dict[str, Variant] = {}
    for variant in VARIANTS:
        for name in (variant.name, *variant.aliases):
            if name in index:
                raise ValueError(f"two variants answer to '{name}'")
            index[name] = variant
    return index


_BY_NAME = _index()


def names() -> list[str]:
    """Return every name and alias."""
    return list(_BY_NAME)


def find(name: str) -> Variant:
    """Look up a variant; hyphens and underscores are the same.

    Raises:
        TargetError: There is none of that name; the message gives the nearest.

    >>> find("pre_ln").name
    'pre-ln'
    """
    variant = _BY_NAME.get(canonical(name))
    if variant is not None:
        return variant
    close = nearest(name, _BY_NAME)
    meant = f"; did you mean 'builtin:{close}'?" if close else "."
    raise TargetError(
        f"there is no built-in model '{name}'{meant}",
        rule="" if close else "Built-in models go by the names that `gradscope variants` lists.",
        hint="gradscope variants",
    )
