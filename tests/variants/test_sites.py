"""The probe finds in every variant the additions that its wiring has, and the depth profile of plain autograd."""

from __future__ import annotations

import pytest

from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.rules import diagnose
from gradscope.variants import VARIANTS, Variant, find, subject
from gradscope.variants.resnet_plan import STAGES
from tests.variants.gradients import decades

FAST = ProbeSettings(num_steps=1, watched_steps=(0,), jacobian=False)
LAYERS = 4
SMALL = {
    "resnet": {"width": 4, "batch": 4},
    "recurrent": {"tokens": 6},
    "mlp": {"layers": LAYERS},
    "block-stack": {"layers": LAYERS},
    "transformer": {"layers": LAYERS, "d_model": 16},
    "vision-transformer": {"layers": LAYERS, "d_model": 16},
}
DEEP = {f"resnet{depth}" for depth in STAGES if depth > 50}


def num_blocks(variant: Variant) -> int:
    return sum(STAGES[variant.parts["depth"]]) if variant.family == "resnet" else LAYERS


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.name not in DEEP], ids=lambda v: v.name)
def test_residual_additions(variant):
    recording = measure(subject(variant.name, SMALL[variant.family], 0), FAST)
    assert sum(recording.tables["sites"]["counted"]) == variant.expected_sites(num_blocks(variant))


def test_shortcuts_left_out_are_not_found():
    recording = measure(subject("resnet18", {**SMALL["resnet"], "shortcut": False}, 0), FAST)
    assert recording.num_rows("sites") == 0


@pytest.mark.parametrize("name", ["no-residual", "post-ln", "pre-ln", "deepnorm", "peri-ln", "parallel", "gpt2", "vit"])
def test_the_probes_profile_is_plain_autograds(name):
    measured = diagnose(measure(subject(name, SMALL[find(name).family], 0), FAST)).metrics
    assert measured["num_blocks"] == LAYERS
    assert measured["decades"] == pytest.approx(decades(name, **SMALL[find(name).family]), abs=1e-4)
