"""The built-in Transformers: each a choice of parts (see `wiring.CHOICES`), with its paper."""

from __future__ import annotations

from gradscope.variants.variant import Variant

TRANSFORMERS: tuple[Variant, ...] = (
    Variant(
        "no-residual",
        "x = f(N(x)): Pre-LN blocks whose residual additions were left out",
        "He et al. 2015, arXiv:1512.03385 (what the skip was invented against); Dong et al. 2021, arXiv:2103.03404",
        "transformer",
        {"skip": "none"},
        aliases=("no-residual-pre-ln",),
    ),
    Variant(
        "pre-ln",
        "x + f(N(x)), final norm",
        "Baevski & Auli 2018, arXiv:1809.10853; Xiong et al. 2020, arXiv:2002.04745",
        "transformer",
        {},
        sites_per_block=2,
    ),
    Variant(
        "post-ln",
        "N(x + f(x)), the original Transformer",
        "Vaswani et al. 2017, arXiv:1706.03762",
        "transformer",
        {"placement": "post", "init": "xavier"},
        sites_per_block=2,
    ),
    Variant(
        "deepnorm",
        "N(alpha x + f(x)), decoder-only: alpha = (2N)^(1/4), branch weights scaled by beta = (8N)^(-1/4)",
        "Wang et al. 2022, DeepNet, arXiv:2203.00555",
        "transformer",
        {
            "placement": "post",
            "skip_scale": "deepnorm",
            "init": "xavier",
            "branch_init": "deepnorm",
            "structure": "decoder",
        },
        aliases=("deepnorm-decoder",),
        sites_per_block=2,
    ),
    Variant(
        "rezero",
        "x + a f(x), a learnt scalar that starts at 0, no norm",
        "Bachlechner et al. 2020, arXiv:2003.04887",
        "transformer",
        {"placement": "none", "branch_scale": "rezero", "init": "xavier"},
        sites_per_block=2,
    ),
)
