"""The built-in Transformers: each a choice of parts (see `wiring.CHOICES`), with its paper."""

from __future__ import annotations

from typing import Any

from gradscope.variants.variant import Variant

_XAVIER = "xavier"
_VASWANI = "Vaswani et al. 2017, arXiv:1706.03762"
_XIONG = "Baevski & Auli 2018, arXiv:1809.10853; Xiong et al. 2020, arXiv:2002.04745"
_DEEPNET = "Wang et al. 2022, DeepNet, arXiv:2203.00555"
_MAGNETO = "Wang et al. 2022, Magneto, arXiv:2210.06423"
_HYPER = "Zhu et al. 2024, Hyper-Connections, arXiv:2409.19606"
_DEEPNORM: dict[str, Any] = {"placement": "post", "skip_scale": "deepnorm", "init": _XAVIER, "branch_init": "deepnorm"}
_SUB_LN: dict[str, Any] = {"inner_norm": "sub-ln", "branch_init": "sub-ln", "init": _XAVIER}
_GPT2: dict[str, Any] = {"structure": "decoder", "init": "gpt2", "position_std": 1.0}


def _transformer(
    name: str,
    description: str,
    paper: str,
    aliases: tuple[str, ...] = (),
    sites: int = 2,
    **parts: Any,
) -> Variant:
    return Variant(name, description, paper, "transformer", parts, aliases, sites)


WITHOUT_SKIPS = (
    _transformer(
        "no-residual",
        "x = f(N(x)): Pre-LN blocks whose residual additions were left out",
        "Dong et al. 2021, arXiv:2103.03404",
        ("no-residual-pre-ln",),
        sites=0,
        skip="none",
    ),
    _transformer(
        "no-residual-no-norm",
        "x = f(x): neither skips nor norms",
        "Dong et al. 2021, arXiv:2103.03404",
        sites=0,
        skip="none",
        placement="none",
    ),
    _transformer(
        "no-residual-post-ln",
        "x = N(f(x)): Post-LN blocks whose residual additions were left out",
        "Dong et al. 2021, arXiv:2103.03404",
        sites=0,
        skip="none",
        placement="post",
    ),
)

PLACEMENTS = (
    _transformer(
        "residual-no-norm",
        "x + f(x): skips without any norm",
        "Zhang et al. 2019, Fixup, arXiv:1901.09321 (why this explodes)",
        placement="none",
        init=_XAVIER,
    ),
    _transformer("post-ln", "N(x + f(x)), the original Transformer", _VASWANI, placement="post", init=_XAVIER),
    _transformer("pre-ln", "x + f(N(x)), final norm", _XIONG),
    _transformer(
        "peri-ln",
        "x + N(f(N(x))), final norm: norms before and after each branch (Gemma 2)",
        "Ding et al. 2021, CogView, arXiv:2105.13290; Kim et al. 2025, Peri-LN, arXiv:2502.02732",
        ("sandwich",),
        placement="sandwich",
    ),
    _transformer(
        "output-norm",
        "x + N(f(x)), final norm, queries and keys unnormalised",
        "Liu et al. 2021, Swin v2, arXiv:2111.09883",
        placement="output",
    ),
    _transformer(
        "output-norm-qk",
        "x + N(f(x)) with RMSNorm and normalised queries and keys (OLMo 2)",
        "OLMo team 2025, arXiv:2501.00656",
        placement="output",
        norm="rms",
        qk_norm=True,
    ),
    _transformer(
        "mix-ln",
        "Post-LN in the first quarter of the blocks, Pre-LN after",
        "Li et al. 2024, Mix-LN, arXiv:2412.13795",
        placement="mix",
    ),
    _transformer(
        "b2t",
        "Post-LN with a connection from each block's bottom to its top",
        "Takase et al. 2022, B2T, arXiv:2206.00330",
        ("bottom-to-top",),
        sites=3,
        arrangement="bottom-to-top",
        placement="post",
        init=_XAVIER,
    ),
    _transformer(
        "residual-dual",
        "a Post-LN stream plus a second stream that sums the branches, normed and added at the end",
        "Xie et al. 2023, ResiDual, arXiv:2304.14802",
        ("residual",),
        sites=4,
        arrangement="dual",
        placement="post",
        init=_XAVIER,
    ),
)

NORMS = (
    _transformer("pre-rms", "x + f(RMSNorm(x))", "Zhang & Sennrich 2019, arXiv:1910.07467", norm="rms"),
    _transformer(
        "pre-bn", "x + f(BatchNorm(x)), statistics over samples and tokens", "Shen et al. 2020, arXiv:2003.07845",
        norm="batch",
    ),
    _transformer("pre-gn", "x + f(GroupNorm(x)), 4 groups", "Wu & He 2018, arXiv:1803.08494", norm="group"),
    _transformer(
        "dyt", "x + f(g tanh(a x) + b): a norm without statistics", "Zhu et al. 2025, DyT, arXiv:2503.10622",
        norm="dyt",
    ),
    _transformer(
        "article-layernorm",
        "Pre-LN with LayerNorm written out with x.var(dim=-1), the unbiased variance",
        "a tutorial's code; nn.LayerNorm divides by D, this by D - 1",
        ("article-layernorm-unbiased",),
        norm="layer-unbiased",
        eps=1e-6,
    ),
    _transformer(
        "article-layernorm-biased",
        "Pre-LN with LayerNorm written out with unbiased=False, as nn.LayerNorm computes it",
        "Ba et al. 2016, arXiv:1607.06450",
        norm="layer-biased",
    ),
)

SCALES = (
    _transformer(
        "deepnorm",
        "N(alpha x + f(x)), decoder-only: alpha = (2N)^(1/4), branch weights with gain (8N)^(-1/4)",
        _DEEPNET,
        ("deepnorm-decoder",),
        **_DEEPNORM,
        structure="decoder",
    ),
    _transformer("deepnorm-encoder", "the same, encoder-only", _DEEPNET, **_DEEPNORM),
    _transformer(
        "deepnorm-enc-dec",
        "DeepNorm's own constants for the two sides of an encoder-decoder",
        _DEEPNET,
        ("deepnorm-encdec",),
        sites=5,
        **_DEEPNORM,
        structure="enc-dec",
    ),
    _transformer(
        "admin",
        "N(w x + f(x)), w from the branch variances of one profiling forward",
        "Liu et al. 2020, Admin, arXiv:2004.08249",
        placement="post",
        skip_scale="admin",
        init=_XAVIER,
    ),
    _transformer(
        "lns",
        "Pre-LN with the norms of block l divided by sqrt(l)",
        "Sun et al. 2025, The Curse of Depth, arXiv:2502.05795",
        ("layernorm-scaling",),
        norm_scale="inverse-sqrt-block",
    ),
    _transformer(
        "depth-mup",
        "x + f(N(x))/sqrt(2L)",
        "Hayou et al. 2021, arXiv:2010.12859; Yang et al. 2023, arXiv:2310.02244",
        branch_scale="inverse-sqrt",
        init=_XAVIER,
    ),
    _transformer(
        "completep", "x + f(N(x))/L", "Dey et al. 2025, CompleteP, arXiv:2505.01618", branch_scale="inverse",
        init=_XAVIER,
    ),
    _transformer(
        "rezero",
        "x + a f(x), a learnt scalar that starts at 0, no norm",
        "Bachlechner et al. 2020, arXiv:2003.04887",
        placement="none",
        branch_scale="rezero",
        init=_XAVIER,
    ),
    _transformer(
        "skipinit",
        "x + a f(x), a learnt scalar, He initialisation, no norm (-a branch_start= sets where a starts)",
        "De & Smith 2020, arXiv:2002.10444",
        placement="none",
        branch_scale="rezero",
        init="he",
    ),
    _transformer(
        "layerscale",
        "x + diag(e) f(N(x)), e learnt from 0.1 (up to 18 blocks), 1e-5 (24), 1e-6 (deeper)",
        "Touvron et al. 2021, CaiT, arXiv:2103.17239",
        branch_scale="layerscale",
    ),
    _transformer(
        "zero-last",
        "Pre-LN with the last map of every branch started at zero, biases too",
        "Goyal et al. 2017, arXiv:1706.02677",
        ("zero-init",),
        init=_XAVIER,
        branch_init="zero-last",
    ),
    _transformer(
        "fixup",
        "x + f(x) without norm: last maps and head zero, the others scaled down, scalar biases and scales",
        "Zhang et al. 2019, Fixup, arXiv:1901.09321",
        placement="none",
        branch_scale="fixup",
        branch_init="fixup",
        init="he",
    ),
)

INSIDE_THE_BRANCH = (
    _transformer(
        "sub-ln",
        "Pre-LN plus a norm before the output projection and fc2; branch weights with gain sqrt(ln 2N)",
        _MAGNETO,
        ("magneto",),
        **_SUB_LN,
    ),
    _transformer(
        "normformer",
        "Pre-LN plus norms after attention and after the activation, and a learnt scale per head",
        "Shleifer et al. 2021, NormFormer, arXiv:2110.09456",
        inner_norm="normformer",
    ),
    _transformer(
        "value-residual",
        "Pre-LN; each block's values averaged with the first block's",
        "Zhou et al. 2024, arXiv:2410.17897",
        value_residual=True,
    ),
    _transformer(
        "parallel",
        "x + attention(N(x)) + mlp(N(x)), one norm",
        "Wang & Komatsuzaki 2021, GPT-J; Chowdhery et al. 2022, PaLM, arXiv:2204.02311",
        arrangement="parallel",
    ),
)

BEYOND_ADDITION = (
    _transformer(
        "highway",
        "(1 - t) x + t f(x), t a learnt gate that starts nearly closed, no norm (-a gate_bias=)",
        "Srivastava et al. 2015, arXiv:1505.00387",
        skip="highway",
        placement="none",
        init=_XAVIER,
    ),
    _transformer(
        "hyper-connections",
        "four streams; each token decides how they are read, written and mixed; starts as Pre-LN",
        _HYPER,
        ("hyper", "hyper-connections-dynamic"),
        arrangement="hyper",
    ),
    _transformer(
        "hyper-connections-static",
        "four streams with learnt reading, writing and mixing, the same for every token; starts as Pre-LN",
        _HYPER,
        arrangement="hyper",
        dynamic_streams=False,
    ),
    _transformer(
        "mhc",
        "hyper-connections whose mixing is made doubly stochastic (Sinkhorn); starts as Pre-LN",
        "Xie et al. 2025, mHC, arXiv:2512.24880",
        arrangement="manifold-hyper",
    ),
    _transformer(
        "ngpt",
        "h = norm(h + a (norm f(h) - h)): all vectors and weights on the unit sphere",
        "Loshchilov et al. 2024, nGPT, arXiv:2410.01131",
        arrangement="sphere",
        norm="none",
        activation="swiglu",
        position="rotary",
        structure="decoder",
        bias=False,
    ),
)

PRESETS = (
    _transformer(
        "gpt2",
        "causal Pre-LN, N(0, 0.02), last maps divided by sqrt(2L), shared embedding and head",
        "Radford et al. 2019, GPT-2",
        ("gpt",),
        **_GPT2,
        branch_init="gpt2",
        tied=True,
    ),
    _transformer(
        "llama",
        "causal Pre-RMSNorm, SwiGLU, rotary positions, grouped key and value heads, no biases",
        "Touvron et al. 2023, Llama 2, arXiv:2307.09288",
        norm="rms",
        activation="swiglu",
        position="rotary",
        kv_heads=2,
        bias=False,
        structure="decoder",
        init="gpt2",
    ),
    _transformer(
        "bert",
        "Post-LN encoder, N(0, 0.02), norm after the embedding",
        "Devlin et al. 2018, arXiv:1810.04805",
        placement="post",
        init="gpt2",
        position_std=1.0,
        embedding_norm=True,
        eps=1e-12,
    ),
    Variant(
        "vit",
        "Pre-LN over patches of an image, class token, N(0, 0.02)",
        "Dosovitskiy et al. 2020, arXiv:2010.11929",
        "vision-transformer",
        {"init": "gpt2", "position_std": 1.0, "eps": 1e-6},
        sites_per_block=2,
    ),
)

TRANSFORMERS: tuple[Variant, ...] = (
    *WITHOUT_SKIPS,
    *PLACEMENTS,
    *NORMS,
    *SCALES,
    *INSIDE_THE_BRANCH,
    *BEYOND_ADDITION,
    *PRESETS,
)
