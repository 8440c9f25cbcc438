import subprocess
import sys

import pytest
import torch

from gradscope.errors import TargetError
from gradscope.variants import VARIANTS, build, find
from gradscope.variants.catalog import names


def test_listing_the_catalogue_loads_no_torch():
    code = "import sys, gradscope.variants as v; v.find('pre-ln'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_unique_lower_case_and_hyphenated():
    listed = names()
    assert len(listed) == len(set(listed))
    assert all(name == name.lower() and "_" not in name for name in listed)


def test_every_entry_says_what_it_is_and_where_from():
    for variant in VARIANTS:
        assert len(variant.description) > 10
        assert len(variant.paper) > 5
        assert "\n" not in variant.description


@pytest.mark.parametrize("written", ["pre-ln", "pre_ln", "Pre-LN"])
def test_spelling_of_names(written):
    assert find(written).name == "pre-ln"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(TargetError, match="did you mean 'builtin:post-ln'"):
        find("postlm")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 3}, "no argument 'layer'; did you mean 'layers'"),
        ({"layers": "many"}, "layers='many' is not a whole number"),
        ({"layers": True}, "layers=True is not a whole number"),
        ({"layers": -1}, "layers=-1 is not a whole number"),
        ({"layers": 0}, "layers=0 is too small"),
        ({"norm": "rsm"}, "Did you mean 'rms'"),
        ({"d_model": 65}, "does not divide into 4 heads"),
        ({"heads": 4, "kv_heads": 3}, "cannot share 3"),
        ({"tied": 1}, "tied=1 is not true or false"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(TargetError, match=message):
        build("pre-ln", **arguments)


def test_hyphens_in_arguments_are_underscores():
    assert build("pre-ln", layers=1, **{"d-model": 16}).embed.tokens.weight.shape[1] == 16


WIRINGS = [
    "no-residual-no-norm", "no-residual", "no-residual-post-ln", "residual-no-norm", "post-ln", "pre-ln",
    "pre-rms", "gpt2", "parallel", "peri-ln", "sandwich", "output-norm", "output-norm-qk", "deepnorm",
    "deepnorm-encoder", "deepnorm-enc-dec", "admin", "b2t", "residual-dual", "mix-ln", "lns", "depth-mup",
    "completep", "rezero", "skipinit", "layerscale", "zero-last", "fixup", "sub-ln", "normformer", "dyt",
    "hyper-connections", "hyper-connections-static", "mhc", "value-residual", "ngpt", "pre-bn", "pre-gn",
    "article-layernorm", "article-layernorm-biased", "llama", "highway", "bert", "vit", "resnet18", "resnet34",
    "resnet50", "resnet101", "resnet152", "article-resnet", "mlp-linear", "mlp-orthogonal", "mlp-tanh",
    "mlp-sigmoid", "mlp-relu", "mlp-relu-he", "mlp-batchnorm", "mlp-residual", "mlp-pre-ln", "lstm", "gru",
]  # fmt: skip
"""Every wiring whose equation and constants were confirmed from papers or their authors' code."""


@pytest.mark.parametrize("name", WIRINGS)
def test_every_confirmed_wiring_is_a_variant(name):
    assert find(name).description


@pytest.mark.parametrize(
    "arguments",
    [{"shortcut": s, "norm": n, "zero_gamma": z, "pre_activation": p} for s in (True, False)
     for n in ("batch", "group", "none") for z in (True, False) for p in (True, False)],
    ids=str,
)  # fmt: skip
def test_residual_networks_come_in_every_combination(arguments):
    model = build("resnet18", width=4, **arguments)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
