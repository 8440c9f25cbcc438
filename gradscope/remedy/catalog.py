"""The remedies: what each changes, and how to make the change in one's own code."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from gradscope.errors import ConfigError
from gradscope.remedy.branches import norm_before, scale_branches, start_at_zero
from gradscope.remedy.places import Places
from gradscope.remedy.skips import add_normed_skips, add_skips
from gradscope.remedy.weights import draw_he, gelu_and_he, redraw, replace_saturating

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Remedy:
    """One change that can be tried.

    Attributes:
        name: How it is asked for: ``--try NAME``.
        title: What it changes, in words.
        how: How to change one's own code, as code or a sentence.
        source: Where it comes from.
        missing: Why it cannot be tried where there is no place for it.
        apply: ``apply(model, places, undo)`` changes the model, leaves in `undo` how to change it back, and returns
            the number of places.
        lr_factor: What the learning rate is multiplied by.
    """

    name: str
    title: str
    how: str
    source: str
    missing: str
    apply: Callable[[nn.Module, Places, ExitStack], int]
    lr_factor: float = 1.0


_NO_BLOCKS = "there are no repeated blocks without a residual addition"
_NO_BRANCHES = "there are no residual branches"
_LOADED = "the weights were loaded, not drawn"


def _orthogonal(weight: torch.Tensor) -> object:
    return nn.init.orthogonal_(weight)


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "skips",
        "a skip round every block",
        "x = x + block(x)",
        "He et al. 2015, arXiv:1512.03385",
        _NO_BLOCKS,
        add_skips,
    ),
    Remedy(
        "normed-skips",
        "a skip round every block, and a norm in front of it",
        "x = x + block(norm(x)), and one norm after the last block",
        "Xiong et al. 2020, arXiv:2002.04745",
        _NO_BLOCKS,
        add_normed_skips,
    ),
    Remedy(
        "pre-norm",
        "norms in front of the branches instead of on the stream",
        "x = x + f(norm(x)), and one norm after the last block",
        "Xiong et al. 2020, arXiv:2002.04745",
        "there are no residual branches without a norm in front",
        norm_before,
    ),
    Remedy(
        "branch-scale",
        "branches divided by the root of their number",
        "x = x + f(x) / math.sqrt(num_branches)",
        "Hayou et al. 2021, arXiv:2010.12859",
        _NO_BRANCHES,
        scale_branches,
    ),
    Remedy(
        "rezero",
        "branches that start at zero",
        "x = x + self.scale * f(x), with self.scale = nn.Parameter(torch.zeros(()))",
        "Bachlechner et al. 2020, arXiv:2003.04887",
        _NO_BRANCHES,
        start_at_zero,
    ),
    Remedy(
        "he-init",
        "He initialisation",
        'nn.init.kaiming_normal_(m.weight, nonlinearity="relu"), biases 0, for every linear map and convolution',
        "He et al. 2015, arXiv:1502.01852",
        _LOADED,
        redraw(draw_he),
    ),
    Remedy(
        "xavier-init",
        "Xavier initialisation",
        "nn.init.xavier_normal_(m.weight), biases 0, for every linear map and convolution",
        "Glorot & Bengio 2010",
        _LOADED,
        redraw(nn.init.xavier_normal_),
    ),
    Remedy(
        "orthogonal-init",
        "orthogonal initialisation",
        "nn.init.orthogonal_(m.weight), biases 0, for every linear map and convolution",
        "Saxe et al. 2013, arXiv:1312.6120",
        _LOADED,
        redraw(_orthogonal),
    ),
    Remedy(
        "gelu",
        "GELU in the place of sigmoid and tanh",
        "nn.GELU() for nn.Sigmoid() and nn.Tanh() between layers",
        "Hendrycks & Gimpel 2016, arXiv:1606.08415",
        "there are no sigmoid or tanh modules",
        replace_saturating,
    ),
    Remedy(
        "gelu-he",
        "GELU in the place of sigmoid and tanh, and He initialisation",
        'nn.GELU() for nn.Sigmoid() and nn.Tanh(), and nn.init.kaiming_normal_(m.weight, nonlinearity="relu")',
        "Hendrycks & Gimpel 2016, arXiv:1606.08415; He et al. 2015, arXiv:1502.01852",
        "there are no sigmoid or tanh modules, or the weights were loaded",
        gelu_and_he,
    ),
    Remedy(
        "lower-lr",
        "a tenth of the learning rate",
        "lr / 10",
        "",
        "",
        lambda _model, _places, _undo: 1,
        lr_factor=0.1,
    ),
)


def find(name: str) -> Remedy:
    """Look up a remedy.

    Raises:
        ConfigError: There is none of that name; the message lists them.
    """
    by_name = {remedy.name: remedy for remedy in REMEDIES}
    written = name.strip().lower().replace("_", "-")
    if written in by_name:
        return by_name[written]
    close = difflib.get_close_matches(written, by_name, n=1, cutoff=0.5)
    hint = f"--try {close[0]}" if close else ""
    raise ConfigError(f"there is no remedy '{name}'.", rule=f"There are {', '.join(by_name)}.", hint=hint)
