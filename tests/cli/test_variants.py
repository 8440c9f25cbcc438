"""`gradscope variants`: the list, one of them, and JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gradscope.cli.variant_page import documented, plan_of
from gradscope.variants import VARIANTS
from tests.cli.running import run

Capture = pytest.CaptureFixture[str]


def test_the_list_has_all(capsys: Capture) -> None:
    done = run(capsys, "variants")
    assert done.code == 0
    assert all(f"  {variant.name}" in done.out for variant in VARIANTS)
    listed = json.loads(run(capsys, "variants", "--json").out)
    assert [entry["name"] for entry in listed] == [variant.name for variant in VARIANTS]


@pytest.mark.parametrize("name", ["peri-ln", "sandwich", "builtin:peri_ln"])
def test_one_is_shown_with_its_parts_what_is_expected_and_its_arguments(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(capsys, "variants", name).out
    parts = ("builtin:peri-ln", "x + N(f(N(x)))", "arXiv:2502.02732", "48 blocks", "+1.09 ±", "qk_norm", "-a layers")
    for part in parts:
        assert part in text, part
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_each_can_be_shown(capsys: Capture, variant) -> None:
    assert run(capsys, "variants", variant.name).code == 0
    assert json.loads(run(capsys, "variants", variant.name, "--json").out)["name"] == variant.name
    plan = plan_of(variant)
    told = set(documented(plan)) | set(getattr(plan, "choices", {}))
    assert told == {argument.name for argument in dataclasses.fields(plan)}


def test_an_unknown_one_is_answered_with_the_nearest(capsys: Capture) -> None:
    done = run(capsys, "variants", "perri-ln")
    assert done.code == 2
    assert "did you mean 'builtin:peri-ln'" in done.err
