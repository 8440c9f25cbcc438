"""Which parts each arrangement of a block has room for: a part that would be ignored is refused instead."""

from __future__ import annotations

from gradscope.errors import TargetError
from gradscope.variants.wiring import Wiring

FIXED: dict[str, dict[str, object]] = {
    "parallel": {"placement": "pre", "skip": "identity", "skip_scale": "one", "branch_scale": "one",
                 "norm_scale": "one", "dropout": 0.0},
    "bottom-to-top": {"placement": "post", "skip": "identity", "skip_scale": "one", "branch_scale": "one",
                      "norm_scale": "one", "dropout": 0.0},
    "dual": {"placement": "post", "skip": "identity"},
    "hyper": {"placement": "pre", "skip": "identity", "skip_scale": "one"},
    "manifold-hyper": {"placement": "pre", "skip": "identity", "skip_scale": "one"},
    "sphere": {"placement": "pre", "skip": "identity", "skip_scale": "one", "branch_scale": "one",
               "norm_scale": "one", "norm": "none", "branch_init": "plain", "inner_norm": "none", "dropout": 0.0,
               "activation": "swiglu", "position": "rotary", "qk_norm": False, "value_residual": False,
               "kv_heads": 0, "tied": False},
}  # fmt: skip
"""Parts that are what the arrangement makes them, by arrangement; "sequential" has room for all."""


def check_arrangement(wiring: Wiring) -> None:
    """Refuse parts that the arrangement has no room for.

    Raises:
        TargetError: One of them was asked for.
    """
    if wiring.structure == "enc-dec" and wiring.arrangement != "sequential":
        raise TargetError(
            f"structure=enc-dec does not go with arrangement={wiring.arrangement}.",
            rule="Encoder-decoders are built from sequential blocks.",
        )
    for part, fixed in FIXED.get(wiring.arrangement, {}).items():
        chosen = getattr(wiring, part)
        if chosen != fixed:
            raise TargetError(
                f"{part}={chosen} does not go with arrangement={wiring.arrangement}.",
                rule=f"There {part} is always {fixed}.",
            )
