"""The built-in models that are not Transformers: image, fully connected and recurrent networks."""

from __future__ import annotations

from gradscope.variants.mlp_plan import TANH_CRITICAL_BIAS_VARIANCE, TANH_CRITICAL_WEIGHT_VARIANCE
from gradscope.variants.resnet_plan import STAGES
from gradscope.variants.variant import Variant

_HE = "He et al. 2015, arXiv:1512.03385"
_INIT = "He et al. 2015, arXiv:1502.01852"

RESNETS = tuple(
    Variant(
        f"resnet{depth}",
        f"{depth} weight layers in {sum(blocks)} residual blocks; -a shortcut=false leaves the skips out",
        _HE,
        "resnet",
        {"depth": depth},
        sites_per_block=1,
    )
    for depth, blocks in STAGES.items()
)

ARTICLE = Variant(
    "article-resnet",
    "a stack of residual blocks as tutorials print them: no norm in the branch",
    "a tutorial's code; the paper's block has BatchNorm after every convolution",
    "block-stack",
    sites_per_block=1,
)

MLPS = (
    Variant(
        "mlp-linear",
        "deep linear network, N(0, 1/n): -a weight_variance= moves it off criticality",
        "Saxe et al. 2013, arXiv:1312.6120",
        "mlp",
        {"activation": "linear", "init": "normal"},
    ),
    Variant(
        "mlp-orthogonal",
        "deep linear network with orthogonal weights: gradients keep their length exactly",
        "Saxe et al. 2013, arXiv:1312.6120",
        "mlp",
        {"activation": "linear", "init": "orthogonal"},
    ),
    Variant(
        "mlp-tanh",
        "tanh at criticality: weight variance 1.76095/n, bias variance 0.05",
        "Schoenholz et al. 2017, arXiv:1611.01232",
        "mlp",
        {
            "activation": "tanh",
            "init": "normal",
            "weight_variance": TANH_CRITICAL_WEIGHT_VARIANCE,
            "bias_variance": TANH_CRITICAL_BIAS_VARIANCE,
        },
        aliases=("mlp-tanh-critical",),
    ),
    Variant(
        "mlp-sigmoid",
        "sigmoid with N(0, 1/n): each layer keeps a quarter of the gradient's norm at most",
        "Glorot & Bengio 2010",
        "mlp",
        {"activation": "sigmoid", "init": "normal"},
    ),
    Variant(
        "mlp-relu",
        "ReLU with nn.Linear's own initialisation: loses a factor 1/sqrt(6) per layer",
        _INIT,
        "mlp",
        {},
        aliases=("mlp-relu-default",),
    ),
    Variant("mlp-relu-he", "ReLU with He initialisation", _INIT, "mlp", {"init": "he"}),
    Variant(
        "mlp-batchnorm",
        "Linear-BatchNorm-ReLU without skips: gradients grow by 1.21 per layer toward the input",
        "Yang et al. 2019, arXiv:1902.08129",
        "mlp",
        {"init": "he", "norm": "batch"},
    ),
    Variant(
        "mlp-residual",
        "x + W relu(x) with He initialisation, no norm: energy doubles in every block",
        "Zhang et al. 2019, Fixup, arXiv:1901.09321",
        "mlp",
        {"init": "he", "skip": "identity"},
        sites_per_block=1,
    ),
    Variant(
        "mlp-pre-ln",
        "x + W relu(LN(x)), final norm",
        "Xiong et al. 2020, arXiv:2002.04745",
        "mlp",
        {"init": "he", "skip": "identity", "norm": "layer"},
        sites_per_block=1,
    ),
)

RECURRENT = (
    Variant(
        "lstm",
        "LSTM, unrolled, that must recall the first token at the end",
        "Hochreiter & Schmidhuber 1997",
        "recurrent",
        {"cell": "lstm"},
    ),
    Variant(
        "gru",
        "GRU, unrolled, that must recall the first token at the end",
        "Cho et al. 2014, arXiv:1406.1078",
        "recurrent",
        {"cell": "gru"},
    ),
    Variant(
        "rnn",
        "plain tanh recurrence, unrolled, that must recall the first token at the end",
        "Bengio et al. 1994",
        "recurrent",
        {"cell": "rnn"},
    ),
)

NETWORKS: tuple[Variant, ...] = (*RESNETS, ARTICLE, *MLPS, *RECURRENT)
