from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gradscope.probe.signals.bins import LOWEST_LOG2, log2_counts, summaries
from gradscope.probe.signals.hub import Signals
from gradscope.probe.signals.observer import StepContext
from tests.signals.watching import watch

FORMATS = {"underflow_fp16": torch.float16, "underflow_e5m2": torch.float8_e5m2, "underflow_e4m3": torch.float8_e4m3fn}


def test_counts_are_exact_powers_of_two() -> None:
    row = torch.tensor([1.0, 1.99, -2.0, 0.0, math.inf, math.nan, 2.0**-149, 3e38], dtype=torch.float64)
    counts = log2_counts(row.unsqueeze(0))[0].tolist()
    assert counts[0 - LOWEST_LOG2] == 2
    assert counts[1 - LOWEST_LOG2] == 1
    assert counts[-149 - LOWEST_LOG2] == 1
    assert counts[127 - LOWEST_LOG2] == 1
    assert counts[-2:] == [1, 2]
    assert sum(counts) == 8


@pytest.mark.parametrize("metric", FORMATS)
def test_underflow_is_what_the_format_rounds_to_zero(metric: str) -> None:
    torch.manual_seed(0)
    values = torch.exp2(torch.rand(2048) * 40 - 35)
    lost = float((values.to(FORMATS[metric]).float() == 0).float().mean())
    found = summaries(log2_counts(values.double().unsqueeze(0)).double())
    assert float(found[metric]) == pytest.approx(lost, abs=1e-6)
    assert 0 < lost < 1


def test_overflow_zeros_and_maximum() -> None:
    values = torch.tensor([[0.0, 1.0, 2.0**16, 7e4]], dtype=torch.float64)
    found = summaries(log2_counts(values).double())
    assert float(found["overflow_fp16"]) == 0.5
    assert float(found["grad_zeros"]) == 0.25
    assert float(found["grad_log2_max"]) == 16


def test_shares_of_nothing_are_not_numbers() -> None:
    found = summaries(log2_counts(torch.zeros(1, 3, dtype=torch.float64)).double())
    assert float(found["grad_zeros"]) == 1
    assert all(math.isnan(float(found[metric])) for metric in (*FORMATS, "grad_log2_max"))


def test_gradients_are_judged_as_they_flow_and_recorded_without_the_loss_scale() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    plain = watch(model, lambda: model(x).sum() * 1e-9)
    model.zero_grad()
    scaled = watch(model, lambda: model(x).sum() * 1e-9 * 2.0**20, context=StepContext(loss_scale=2.0**20))
    assert plain("underflow_fp16", "1") == 1
    assert scaled("underflow_fp16", "1") == 0
    for key, histogram in plain.histograms.items():
        assert scaled.histograms[key].counts == histogram.counts
        assert scaled.histograms[key].first_log2 == histogram.first_log2


def test_histograms_count_every_element_of_a_small_gradient() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    seen = watch(model, lambda: model(torch.randn(4, 8)).square().sum())
    histogram = seen.histograms["parameter", "0.weight"]
    grads = model[0].weight.grad
    assert sum(histogram.counts) + histogram.zeros == 64
    assert histogram.first_log2 == math.floor(float(grads.abs().min().log2()))


def test_a_large_gradient_is_represented_by_few_elements() -> None:
    model = nn.Sequential(nn.Linear(512, 512, bias=False))
    seen = watch(model, lambda: model(torch.randn(4, 512)).square().sum())
    assert 500 < sum(seen.histograms["parameter", "0.weight"].counts) <= 1024


def test_stacked_gradients_are_sampled_as_single_ones_and_the_last_backward_counts() -> None:
    torch.manual_seed(0)
    grads = torch.randn(3, 40, 64)
    found = []
    for stacked in (True, False):
        signals = Signals(nn.Linear(2, 2), "default", {"": "other"})
        signals.begin(0)
        if stacked:
            signals.parameters(["a", "b", "c"], grads * 2.0**40)  # an earlier backward
            signals.parameters(["a", "b", "c"], grads)
        for i, name in enumerate("abc"):
            if not stacked or name == "b":
                signals.parameters([name], grads[i])
        signals.finish(StepContext())
        observations, histograms = signals.read()
        assert len(histograms) == 3
        found.append((sorted(observations), sorted(histograms)))
    assert found[0] == found[1]


def test_subnormal_numbers_of_float32_have_bins_of_their_own() -> None:
    row = torch.tensor([2.0**-149, 2.0**-130, 2.0**-127, 2.0**-126, -0.0, -math.inf])
    counts = log2_counts(row.unsqueeze(0))[0].tolist()
    assert [counts[log2 - LOWEST_LOG2] for log2 in (-149, -130, -127, -126)] == [1, 1, 1, 1]
    assert counts[-2:] == [1, 1]
