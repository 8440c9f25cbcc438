"""Every claim that can be run is run, and comes out as independent measurement says."""

from __future__ import annotations

import json

import pytest
import torch

from gradscope.experiments import EXPERIMENTS, ExperimentResult, run

# What an earlier, independent study of the same claims found; by experiment, a piece of each claim's text.
EXPECTED = {
    "residual": {
        "Factors below one": "holds",
        "does not converge and accuracy": "holds",
        "reaches 85 %": "holds",
        "swings violently": "does not hold",
        "first layers vanish": "depends",
        "exceed 1000": "does not hold",
        "degrades from layer to layer": "holds",
        "From about ten layers": "does not hold",
        "keeps its size however deep": "depends",
    },
    "placement": {
        "gradients tend to explode": "does not hold",
        "amplified because values grow": "does not hold",
        "falls as 1/sqrt(L)": "holds",
        "Post-LN needs warmup": "depends",
        "needs no warmup and is insensitive": "holds",
        "do not grow with depth": "depends",
        "as printed is complete": "depends",
        "closer to the residual networks' design": "depends",
    },
    "xiong": {
        "falls as 1/sqrt(L) in Pre-LN": "holds",
        "in proportion to the width": "holds",
        "mean square of 3/2": "holds",
        "between 1 + L/2 and 1 + 3L/2": "holds",
    },
    "depth": {
        "18 to 152 layers train": "holds",
        "higher training error": "holds",
        "gradient vanishes on its way": "depends",
        "keeps the gradient from decaying": "depends",
        "as deep as large language models": "depends",
        "is the residual networks' block": "does not hold",
        "more than 20 layers": "depends",
        "printed residual block (no BatchNorm": "depends",
        "applies ReLU to the branch": "does not hold",
    },
    "norm-axis": {
        "each feature over the samples": "holds",
        "the sample alone": "holds",
        "padding": "holds",
        "GroupNorm suits": "holds",
        "poor in small batches": "holds",
        "training and evaluation": "holds",
        "batch of one": "depends",
        "scale from layer to layer": "depends",
    },
    "layernorm": {
        "is (x - mu) / sqrt": "holds",
        "[100, 0.1, 50, 200]": "holds",
        "class computes its formula": "does not hold",
        "unbiased=False": "holds",
        "gradient of gamma": "holds",
        "restores its input": "does not hold",
        "0.05 %": "holds",
        "large values get large gradients": "holds",
    },
    "init": {
        "makes the block the identity": "depends",
        "variance of the main path": "holds",
        "DeepNorm is x = alpha x": "does not hold",
        "DeepNorm as published": "holds",
        "passes the gradient unchanged": "holds",
    },
    "precision": {
        "kept in float32": "depends",
        "computed in float32": "holds",
        "epsilon": "depends",
        "e^100": "depends",
    },
    "norm-cost": {"leaves out the centring": "holds"},
    "paths": {
        "eight paths": "holds",
        "long ones included": "does not hold",
        "at least its value 1": "depends",
        "sum of all layers": "depends",
    },
    "collapse": {
        "lost layer by layer": "holds",
        "preserve the original": "depends",
        "queries and keys get no gradient": "holds",
        "means a healthy network": "depends",
    },
    "hooks": {"register_full_backward_hook": "depends", "told apart": "holds"},
}

_RESULTS: dict[str, ExperimentResult] = {}


def result(name: str) -> ExperimentResult:
    """Run each experiment once."""
    if name not in _RESULTS:
        _RESULTS[name] = run(name, quick=True)
    return _RESULTS[name]


def test_every_experiment_is_expected_to_say_something():
    assert set(EXPECTED) == {experiment.name for experiment in EXPERIMENTS}


@pytest.mark.parametrize("name", EXPECTED)
def test_verdicts(name):
    found = result(name)
    for piece, verdict in EXPECTED[name].items():
        claims = [claim for claim in found.claims if piece in claim.text]
        assert len(claims) == 1, piece
        assert claims[0].verdict == verdict, (claims[0].text, claims[0].evidence)


@pytest.mark.parametrize("name", EXPECTED)
def test_results_are_complete_and_json(name):
    found = result(name)
    assert found.quick
    assert found.tables
    json.dumps(found.to_object(), allow_nan=False)
    for claim in found.claims:
        assert claim.checks
        assert claim.source
        assert all(check.low is not None or check.high is not None for check in claim.checks)


def test_running_leaves_the_random_state_alone_and_reports_progress():
    torch.manual_seed(3)
    before, told = torch.get_rng_state(), []
    run("layernorm", quick=True, progress=lambda *what: told.append(what))
    assert torch.equal(torch.get_rng_state(), before)
    assert told[0][1] == 0
    assert told[-1][1] == told[-1][2]


def test_the_worked_example_is_what_the_tutorial_prints_and_its_code_is_not():
    rows = {row[0]: row[1:] for row in result("layernorm").tables[0].rows}
    assert rows["nn.LayerNorm"] == pytest.approx((0.1688, -1.1827, -0.5076, 1.5215), abs=1e-4)
    assert rows["tutorial's code, x.var(dim=-1)"] == pytest.approx((0.1462, -1.0242, -0.4396, 1.3177), abs=1e-4)


def test_absorption_is_its_closed_form():
    for _, _, measured, predicted in result("precision").tables[0].rows:
        assert measured == pytest.approx(predicted, rel=0.15)


def test_path_lengths_are_binomial():
    for _, measured, binomial, _ in result("paths").tables[0].rows:
        assert measured == pytest.approx(binomial, abs=0.02)
