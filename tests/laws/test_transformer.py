"""Closed forms for whole Transformers (numbers in brackets count the laws), on the stream the probe finds."""

from __future__ import annotations

import math

import pytest

from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.variants import subject


def decades(name: str, layers: int, seed: int) -> float:
    """D of a built-in Transformer's stream, from the stations of its recording."""
    settings = ProbeSettings(num_steps=1, watched_steps=(0,), jacobian=False, device="cpu")
    recording = measure(subject(name, {"layers": layers, "init": "xavier"}, seed), settings)
    assert recording.num_rows("stream") > layers
    norms = [row["grad_norm"] for row in recording.rows("stream_stats")]
    return math.log10(norms[0] / norms[-1])


@pytest.mark.parametrize("layers", [6, 12])
def test_peri_norm_transformer(layers: int) -> None:
    """[17t] Full Peri-LN Transformer: D = 0.5 log10(1 + 2 L); the observed offset is 0.06 to 0.13 decades."""
    found = sum(decades("peri-ln", layers, seed) for seed in range(2)) / 2
    assert found == pytest.approx(0.5 * math.log10(1 + 2 * layers), abs=0.2)
    assert found > 0.3


def test_zero_initialised_branches_keep_the_gradient() -> None:
    """[16] ReZero as a whole Transformer: D = 0 exactly."""
    assert decades("rezero", 6, 0) == 0.0
