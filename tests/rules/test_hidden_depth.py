"""A deep model whose inside cannot be seen is not called healthy when its weights' gradients lie decades apart."""

from __future__ import annotations

import pytest

from gradscope.record import Recording
from gradscope.rules import diagnose
from tests.support.recordings import add, build, empty_table


def _hidden(decades: float, scale: float = 1.0) -> Recording:
    names = ("modules", "parameters", "calls", "steps", "call_stats", "parameter_stats")
    tables = {name: empty_table(name) for name in names}
    add(tables["modules"], name="", type="Net", role="other", num_parameters=20 * 64, called=True)
    call = add(tables["calls"], module="", call=0, shape=[8, 8], dtype="float32")
    for layer in range(20):
        add(tables["parameters"], name=f"ws.{layer}", module="", shape=[8, 8], dtype="float32", num_elements=64,
            requires_grad=True, takes_part=True)  # fmt: skip
    for step in (0, 3, 10):
        add(tables["steps"], step=step, loss=scale, grad_norm=scale, lr=1e-3)
        add(tables["call_stats"], step=step, call=call, num_elements=64, forward_norm=1.0, grad_norm=scale)
        for layer in range(20):
            grad = scale * 10 ** (-decades * (19 - layer) / 19)
            row = {"step": step, "parameter": layer, "grad_norm": grad, "weight_norm": 1.0, "update_norm": 1e-3}
            add(tables["parameter_stats"], **row)
    return build(tables, optimizer="adam", lr=1e-3, num_steps=11)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
@pytest.mark.parametrize(("decades", "verdict"), [(0.0, "will-train"), (3.0, "will-train"), (12.0, "cannot-say")])
def test_verdict(decades: float, verdict: str, scale: float) -> None:
    assert diagnose(_hidden(decades, scale)).verdict == verdict
