"""A module whose own factors are all zero never wakes up; one of them alone may only lack an input."""

from __future__ import annotations

import pytest

from gradscope.rules import diagnose
from tests.support.recordings import add, build, empty_table


def _adapters(weight_norms: tuple[float, float]) -> object:
    tables = {
        name: empty_table(name) for name in ("modules", "parameters", "calls", "steps", "call_stats", "parameter_stats")
    }
    add(tables["modules"], name="", type="Net", role="container", num_parameters=0, called=True)
    add(tables["modules"], name="lora", type="LoRA", role="other", num_parameters=128, called=True)
    call = add(tables["calls"], module="lora", call=0, shape=[8, 8], dtype="float32")
    for name in ("down", "up"):
        add(
            tables["parameters"],
            name=f"lora.{name}",
            module="lora",
            shape=[8, 8],
            dtype="float32",
            num_elements=64,
            requires_grad=True,
            takes_part=True,
        )
    for step in (0, 3, 10):
        add(tables["steps"], step=step, loss=1.0, grad_norm=0.0, lr=1e-3)
        add(tables["call_stats"], step=step, call=call, num_elements=64, forward_norm=1.0, grad_norm=0.5)
        for row, norm in enumerate(weight_norms):
            add(tables["parameter_stats"], step=step, parameter=row, grad_norm=0.0, weight_norm=norm, update_norm=0.0)
    return build(tables, optimizer="adam", lr=1e-3, num_steps=11)


def test_two_zero_factors_are_dead_for_good() -> None:
    diagnosis = diagnose(_adapters((0.0, 0.0)))  # type: ignore[arg-type]
    dead = [finding for finding in diagnosis.findings if finding.code == "GS105"]
    assert [finding.severity for finding in dead] == ["error"]
    assert "lora.down" in dead[0].message
    assert "lora.up" in dead[0].message
    assert diagnosis.verdict == "will-not-train"


@pytest.mark.parametrize("norms", [(1.0, 1.0), (0.0, 1.0)])
def test_weights_that_are_not_zero_only_lack_an_input(norms: tuple[float, float]) -> None:
    dead = [finding for finding in diagnose(_adapters(norms)).findings if finding.code == "GS105"]  # type: ignore[arg-type]
    assert [finding.severity for finding in dead] == ["warning"]
