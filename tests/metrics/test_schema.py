"""What a recording may hold is written down in one place."""

from __future__ import annotations

import pytest

from gradscope.metrics.replicas import with_replicas
from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.record import OBSERVATIONS, Recording
from gradscope.variants import subject


def measured(name: str, seed: int = 0, **arguments: int) -> Recording:
    """Watch two steps with everything on."""
    settings = ProbeSettings(num_steps=2, watched_steps=(0, 1), level="deep", seed=seed)
    return measure(subject(name, arguments, seed), settings)


@pytest.mark.parametrize(("name", "arguments"), [("pre-ln", {"layers": 2, "d_model": 16}), ("resnet18", {"width": 8})])
def test_every_metric_is_described(name: str, arguments: dict[str, int]) -> None:
    recording = with_replicas(measured(name, **arguments), [measured(name, seed=1, **arguments)])
    found = set(recording.tables["observations"]["metric"])
    assert {"decades_of_seed", "jacobian_anisotropy", "gradient_cosine"} <= found
    assert found <= set(OBSERVATIONS)
