"""The machine view: the documented object, complete, and JSON whatever was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gradscope.record import Recording
from gradscope.report.machine import to_object
from gradscope.rules.finding import Diagnosis
from tests.report.samples import healthy, hostile, nothing_measured, sick
from tests.support.recordings import add

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "json.schema.json").read_text())


def strict(value: Any) -> Any:
    """The schema without room for undocumented keys, so that the documentation cannot fall behind."""
    if isinstance(value, dict):
        closed = {key: strict(item) for key, item in value.items()}
        has_room = "properties" not in value or value.get("x-open")
        return closed if has_room else {**closed, "additionalProperties": False}
    return [strict(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("sample", [sick, healthy, hostile, nothing_measured])
def test_the_object_is_what_the_schema_documents(sample: Callable[[], tuple[Recording, Diagnosis]]) -> None:
    content = json.loads(json.dumps(to_object(*sample()), allow_nan=False))
    jsonschema.validate(content, strict(SCHEMA))


def test_numbers_stay_numbers_and_nonfinite_ones_become_their_names() -> None:
    recording, diagnosis = healthy()
    recording.tables["steps"]["loss"][:] = [float("nan"), float("inf"), float("-inf")]
    content = to_object(recording, diagnosis)
    assert [step["loss"] for step in content["steps"]] == ["nan", "inf", "-inf"]
    assert content["steps"][0]["grad_norm"] == 1.0


def test_parameters_come_once_with_null_where_no_gradient_arrived() -> None:
    recording, diagnosis = healthy(2)
    recording.tables["parameter_stats"]["grad_norm"][0] = None
    add(recording.tables["parameters"], name="tied.weight", module="tied", shared_with="embed.weight")
    add(recording.tables["parameters"], name="frozen", module="")
    content = to_object(recording, diagnosis)
    norms = {row["name"]: row["grad_norm"] for row in content["parameters"]}
    assert norms["embed.weight"] is None
    assert norms["layers.0.fc.weight"] == pytest.approx(0.1)
    assert norms["frozen"] is None
    assert "tied.weight" not in norms


def test_sites_carry_their_ratios_at_the_first_watched_step() -> None:
    content = to_object(*sick(3))
    assert [site["name"] for site in content["residual_sites"]] == ["layers.0 + fc", "layers.1 + fc", "layers.2 + fc"]
    first = content["residual_sites"][0]
    assert first["forward_ratio"] == pytest.approx(0.3)
    assert first["backward_ratio"] == pytest.approx(0.3)
    assert first["branches"] == ["layers.0.norm", "layers.0.fc"]


def test_modules_are_listed_per_call() -> None:
    content = to_object(*sick(2))
    assert [row["name"] for row in content["modules"]][:2] == ["embed", "layers.0.norm"]
    assert all(row["call"] == 0 and row["grad_norm"] > 0 for row in content["modules"])


def test_metrics_that_were_not_measured_are_null() -> None:
    content = to_object(*nothing_measured())
    assert content["metrics"]["decades"] is None
    assert content["metrics"]["jacobian_anisotropy"] is None


def test_a_norm_at_the_end_of_the_branch_alone_is_none_of_the_documented_placements() -> None:
    recording, diagnosis = healthy(2)
    recording.tables["sites"]["placement"][:] = ["output", None]
    content = to_object(recording, diagnosis)
    assert [site["placement"] for site in content["residual_sites"]] == ["none", None]
