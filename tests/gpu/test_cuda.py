"""On a CUDA device: the same numbers as on the CPU, no synchronisation inside a step, nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradscope.probe import measure
from gradscope.probe.session import Session
from gradscope.probe.settings import ProbeSettings
from gradscope.target import load

pytestmark = pytest.mark.gpu


def _step(model: nn.Module, ids: torch.Tensor, session: Session | None) -> list[torch.Tensor]:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    if session is None:
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
    else:
        with session.step(0) as watch:
            with watch.forward():
                loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
    return [loss.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def _transformer() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)
    model = nn.Sequential(nn.Embedding(50, 64), nn.TransformerEncoder(layer, 6), nn.Linear(64, 50))
    return model.cuda(), torch.randint(0, 50, (4, 16), device="cuda")


def test_gradients_are_those_of_the_bare_step() -> None:
    model, ids = _transformer()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        bare = _step(model, ids, None)
        watched = _step(model, ids, Session(model, "default", Path.cwd()))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))


def test_a_watched_step_never_waits_for_the_device() -> None:
    model, ids = _transformer()
    session = Session(model, "default", Path.cwd())
    _step(model, ids, session)  # finds the structure
    with session.step(1) as watch:
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with watch.forward():
                loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_norms_agree_with_the_cpu(dtype: str) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        subject = load("builtin:pre-ln", arguments={"layers": 4})
        settings = ProbeSettings(num_steps=1, watched_steps=(0,), device=device, dtype=dtype, jacobian=False)
        recording = measure(subject, settings)
        found[device] = recording.tables["stream_stats"]["grad_norm"]
    tolerance = 1e-3 if dtype == "float32" else 0.1
    assert found["cuda"] == pytest.approx(found["cpu"], rel=tolerance)
