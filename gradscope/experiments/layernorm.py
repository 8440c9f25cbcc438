"""LayerNorm worked by hand: the printed example, the printed code, its two parameters and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from gradscope.experiments.result import Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import HISTORY, TUTORIAL
from gradscope.variants.norms import WrittenLayerNorm

EXAMPLE = (100.0, 0.1, 50.0, 200.0)
"""The tutorial's token of width 4."""
PRINTED = (0.169, -1.183, -0.507, 1.521)
"""What the tutorial says it becomes."""
PRINTED_PRECISION = 1e-3
"""One unit in the last printed digit: the tutorial cuts digits off rather than rounding."""
SAME = 1e-4
"""Difference below which two float32 computations are the same."""
WIDTH, HIDDEN = 768, 3072
"""The tutorial's widths."""
SHARE = 0.0005
"""The tutorial's "less than 0.05 %"."""
SCALED_INPUTS = (150.0, 0.1, 65.0)
"""Typical sizes of the tutorial's three uneven dimensions."""


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Compute everything once; it takes no time, so the short form is the long one."""
    progress("LayerNorm by hand", 0, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tables = [_example_table(), _width_table()]
        claims = [
            _formula_claim(),
            _example_claim(),
            _unbiased_claim(),
            _biased_claim(),
            _gradient_claim(),
            _restores_claim(),
            _share_claim(),
            _uneven_claim(),
        ]
    progress("done", 1, 1)
    return tables, claims, ["Errors are the largest over all elements of a batch of standard normal numbers."]


def _norms(width: int) -> dict[str, nn.Module]:
    return {
        "nn.LayerNorm": nn.LayerNorm(width, eps=1e-6),
        "tutorial's code, x.var(dim=-1)": WrittenLayerNorm(width, unbiased=True),
        "article's code, unbiased=False": WrittenLayerNorm(width, unbiased=False),
    }


def _example_table() -> Table:
    x = torch.tensor(EXAMPLE)
    rows: list[tuple[str | float, ...]] = [("printed in the tutorial", *PRINTED)]
    rows += [(name, *layer(x).tolist()) for name, layer in _norms(len(EXAMPLE)).items()]
    headings = tuple(f"x = {value:g}" for value in EXAMPLE)
    return table("The worked example", ("computed by", *headings), rows)


def _width_table() -> Table:
    rows = []
    for width in (4, 64, WIDTH):
        norms = _norms(width)
        error = max_difference(norms["tutorial's code, x.var(dim=-1)"], norms["nn.LayerNorm"], width)
        same = max_difference(norms["article's code, unbiased=False"], norms["nn.LayerNorm"], width)
        rows.append((width, math.sqrt((width - 1) / width), error, same))
    return table(
        "Largest difference from nn.LayerNorm",
        ("width d", "sqrt((d - 1) / d)", "unbiased variance", "biased variance"),
        rows,
    )


def max_difference(first: nn.Module, second: nn.Module, width: int) -> float:
    """Largest difference between two norms over 64 random tokens."""
    x = torch.randn(64, width)
    return float((first(x) - second(x)).detach().abs().max())


def _formula_claim() -> Claim:
    x, eps = 3 * torch.randn(64, WIDTH, dtype=torch.float64) + 1, 1e-6
    centred = x - x.mean(dim=-1, keepdim=True)
    written = centred / (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    error = float((written - F.layer_norm(x, (WIDTH,), eps=eps)).abs().max())
    return Claim(
        "LayerNorm is (x - mu) / sqrt(sigma^2 + eps), sigma^2 the mean squared deviation.",
        TUTORIAL,
        (Check(f"width {WIDTH}, float64", "largest difference from torch's layer_norm", error, high=1e-9),),
    )


def _example_claim() -> Claim:
    computed = nn.LayerNorm(len(EXAMPLE), eps=1e-6)(torch.tensor(EXAMPLE)).detach()
    error = float((computed - torch.tensor(PRINTED)).abs().max())
    return Claim(
        "LayerNorm turns [100, 0.1, 50, 200] into [0.169, -1.183, -0.507, 1.521].",
        TUTORIAL,
        (Check("nn.LayerNorm", "largest difference from the printed numbers", error, high=PRINTED_PRECISION),),
        "Right up to cut digits: -0.5076 rounds to -0.508.",
    )


def _unbiased_claim() -> Claim:
    checks = []
    for width in (4, 64, WIDTH):
        norms = _norms(width)
        error = max_difference(norms["tutorial's code, x.var(dim=-1)"], norms["nn.LayerNorm"], width)
        checks.append(Check(f"width {width}", "largest difference from nn.LayerNorm", error, high=SAME))
    return Claim(
        "The tutorial's LayerNorm class computes its formula.",
        TUTORIAL,
        tuple(checks),
        "x.var divides by d - 1, the formula by d: outputs come out smaller by sqrt((d - 1) / d), "
        "and the tutorial's own code does not print the tutorial's own example.",
    )


def _biased_claim() -> Claim:
    checks = []
    for width in (4, 64, WIDTH):
        norms = _norms(width)
        error = max_difference(norms["article's code, unbiased=False"], norms["nn.LayerNorm"], width)
        checks.append(Check(f"width {width}", "largest difference from nn.LayerNorm", error, high=SAME))
    return Claim("The article's LayerNorm class (unbiased=False) is LayerNorm.", HISTORY, tuple(checks))


def _gradient_claim() -> Claim:
    width = 16
    layer = nn.LayerNorm(width).double()
    x, upstream = torch.randn(2, 5, 7, width, dtype=torch.float64)
    layer(x).backward(upstream)
    x_hat = F.layer_norm(x, (width,))
    gamma, beta = (upstream * x_hat).sum(dim=(0, 1)), upstream.sum(dim=(0, 1))
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    return Claim(
        "The gradient of gamma is the upstream gradient times x-hat, that of beta the upstream gradient.",
        TUTORIAL,
        (
            Check("gamma", "largest difference", float((layer.weight.grad - gamma).abs().max()), high=1e-9),
            Check("beta", "largest difference", float((layer.bias.grad - beta).abs().max()), high=1e-9),
        ),
        "Summed over batch and tokens.",
    )


def _restores_claim() -> Claim:
    """Set gamma and beta to the statistics each norm took away, per feature, and see whether the input comes back."""
    x = torch.randn(256, 32) * torch.linspace(0.5, 3, 32) + torch.linspace(-2, 2, 32)
    std, mean = x.std(0, unbiased=False), x.mean(0)
    layer_norm = F.layer_norm(x, (32,), std, mean)
    batch_norm = F.batch_norm(x, None, None, std, mean, training=True)
    layer_error, batch_error = (float((y - x).norm() / x.norm()) for y in (layer_norm, batch_norm))
    return Claim(
        "With gamma_i = sigma_i and beta_i = mu_i LayerNorm restores its input.",
        TUTORIAL,
        (Check("LayerNorm", "relative error of the restored input", layer_error, high=0.01),),
        f"True of BatchNorm (error {batch_error:.1g}), whose statistics belong to the feature. LayerNorm's belong to "
        "the token: no fixed gamma and beta can undo them.",
    )


def _share_claim() -> Claim:
    mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH))
    share = _size(nn.LayerNorm(WIDTH)) / _size(mlp)
    block = _size(mlp) + _size(nn.MultiheadAttention(WIDTH, 12))
    return Claim(
        "LayerNorm's parameters are less than 0.05 % of a feed-forward's.",
        TUTORIAL,
        (
            Check("one LayerNorm / one feed-forward, width 768", "share", share, high=SHARE),
            Check(
                "two LayerNorms / attention and feed-forward",
                "share",
                2 * _size(nn.LayerNorm(WIDTH)) / block,
                high=SHARE,
            ),
        ),
    )


def _uneven_claim() -> Claim:
    """A linear map on inputs of very different sizes: the weight gradient of each column is its input."""
    linear = nn.Linear(len(SCALED_INPUTS), 8, bias=False)
    linear(torch.tensor(SCALED_INPUTS)).sum().backward()
    assert linear.weight.grad is not None
    columns = linear.weight.grad.norm(dim=0)
    ratio = float(columns.max() / columns.min())
    return Claim(
        "Dimensions with large values get large gradients.",
        TUTORIAL,
        (
            Check(
                "weights behind inputs of 150 and 0.1",
                "ratio of gradients / ratio of inputs",
                ratio / (max(SCALED_INPUTS) / min(SCALED_INPUTS)),
                low=0.99,
                high=1.01,
            ),
        ),
        "True of the weights that read them.",
    )


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
