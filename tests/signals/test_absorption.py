from __future__ import annotations

import pytest
import torch

from gradscope.probe.signals.absorption import Absorption, absorbed
from gradscope.probe.signals.observer import Addition, Readings, StepContext


def observe(skip: torch.Tensor, branch: torch.Tensor, first_is_skip: bool = True) -> dict[str, float]:
    readings = Readings()
    signal = Absorption(readings)
    signal.begin(0, None)
    signal.addition(3, *((skip, branch) if first_is_skip else (branch, skip)))
    signal.addition(4, skip, skip)
    signal.finish(StepContext(additions=[Addition(3, "block + f", 0, 0 if first_is_skip else 1)]))
    readings.read()
    return {o.metric: o.value for o in readings.observations}


@pytest.mark.parametrize("first_is_skip", [True, False])
def test_the_branch_is_absorbed_by_the_skip_not_the_reverse(first_is_skip: bool) -> None:
    found = observe(torch.ones(64), torch.full((64,), 1e-3), first_is_skip)
    assert found == {"absorption": 0.0, "absorption_bf16": 1.0, "absorption_fp16": 0.0}


def test_the_stream_dtype_is_the_one_measured() -> None:
    found = observe(torch.ones(64, dtype=torch.bfloat16), torch.full((64,), 1e-3, dtype=torch.bfloat16))
    assert found["absorption"] == 1.0


def test_zero_branches_absorb_nothing_and_have_no_share() -> None:
    assert observe(torch.ones(8), torch.zeros(8)) == {}
    counts = absorbed(torch.ones(4), torch.tensor([0.0, 1e-9, 1.0, 0.0]), torch.float32)
    assert counts.tolist() == [1.0, 2.0]
