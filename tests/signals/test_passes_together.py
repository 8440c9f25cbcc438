from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradscope.probe.signals.jacobian import StreamEnd
from gradscope.probe.signals.passes import Passes, measure_passes


def ends_of(model: nn.Sequential):
    """Find the ends of a plain stack by hooks on its first and last layer."""

    def find(forward):
        found: list[StreamEnd] = []
        keep = lambda _m, _i, out: found.append(StreamEnd.of(out))  # noqa: E731
        handles = [m.register_forward_hook(keep) for m in (model[0], model[-1])]
        try:
            forward()
        finally:
            for handle in handles:
                handle.remove()
        return found[0], found[1]

    return find


def measure(model: nn.Sequential, x: Tensor) -> Passes:
    return measure_passes(
        model, lambda b: model(b[0]), lambda b: F.mse_loss(model(b[0]), torch.ones_like(b[0])), (x,),
        find_ends=ends_of(model), deep=True,
    )  # fmt: skip


def test_all_of_them_leave_no_trace_and_repeat() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 8))
    x = torch.randn(16, 8)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    first, second = measure(model, x), measure(model, x)
    assert {o.metric for o in first.observations} == {
        "jacobian_anisotropy", "jacobian_gain_log10", "jacobian_passes", "amplification", "shattering_cosine",
        "gradient_cosine", "jacobian_error",
    }  # fmt: skip
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())


class Picky(nn.Sequential):
    wanted = 16

    def forward(self, x: Tensor) -> Tensor:
        assert len(x) == self.wanted, "I want all"
        return super().forward(x)


def test_a_model_that_refuses_a_part_of_its_batch_is_measured_on_the_whole() -> None:
    found = measure(Picky(nn.Linear(8, 8), nn.Linear(8, 8)), torch.randn(16, 8))
    assert found.confessions == [("gradient_cosine", "AssertionError: I want all")]
    assert {"jacobian_anisotropy", "amplification", "shattering_cosine"} <= {o.metric for o in found.observations}


def test_what_a_model_refuses_on_any_batch_is_confessed() -> None:
    model = Picky(nn.Linear(8, 8), nn.Linear(8, 8))
    model.wanted = 15
    found = measure(model, torch.randn(16, 8))
    assert ("jacobian_anisotropy", "AssertionError: I want all") in found.confessions
    assert not found.observations
