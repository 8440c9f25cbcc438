"""The built-in models that are not Transformers over tokens: image, fully connected and recurrent networks."""

from __future__ import annotations

from gradscope.variants.resnet_plan import STAGES
from gradscope.variants.variant import Variant

_HE = "He et al. 2015, arXiv:1512.03385"

RESNETS = tuple(
    Variant(
        f"resnet{depth}",
        f"{depth}-layer residual network ({sum(blocks)} blocks); -a shortcut=false leaves the skips out",
        _HE,
        "resnet",
        {"depth": depth},
        sites_per_block=1,
    )
    for depth, blocks in STAGES.items()
)

NETWORKS: tuple[Variant, ...] = (*RESNETS,)
