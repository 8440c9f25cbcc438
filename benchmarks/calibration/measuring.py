"""Watch every network for eleven steps, as `gradscope inspect` does, and keep the recordings."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.calibration import results
from benchmarks.calibration.peers import PEERS, observe
from benchmarks.calibration.training import AnyNetwork
from gradscope.errors import GradscopeError
from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings

OPTIMIZERS = {"adam": 1e-3, "sgd": 1e-2}
"""Optimizer and the learning rate of the watched steps: the ordinary first choice, not the one that trains best."""


def recording_path(name: str, optimizer: str) -> Path:
    """Where a network's recording is kept."""
    return results.RECORDINGS / f"{name}.{optimizer}.json.gz"


def measure_all(chosen: Sequence[AnyNetwork], optimizers: tuple[str, ...]) -> None:
    """Measure every network that has no recording yet, once with each optimizer; and what other tools would see."""
    results.RECORDINGS.mkdir(exist_ok=True)
    known = {row["name"] for row in results.read(results.PEERS)}
    for number, network in enumerate(chosen):
        start = time.perf_counter()
        for optimizer in optimizers:
            _measure(network, optimizer)
        if network.name not in known:
            seen = observe(network)
            results.append(results.PEERS, {"name": network.name, **{peer: int(PEERS[peer](seen)) for peer in PEERS}})
        print(f"{number + 1}/{len(chosen)} {network.name} {time.perf_counter() - start:.1f} s", file=sys.stderr)


def _measure(network: AnyNetwork, optimizer: str) -> None:
    path = recording_path(network.name, optimizer)
    if path.exists():
        return
    dtype = None if network.dtype == "float32" else network.dtype
    settings = ProbeSettings(optimizer=optimizer, lr=OPTIMIZERS[optimizer], dtype=dtype, device="cpu")
    try:
        recording = measure(network.subject(), settings)
    except GradscopeError as error:
        kept = getattr(error, "recording", None)
        if kept is None:
            print(f"{network.name} {optimizer}: {error}", file=sys.stderr)
            return
        recording = kept
    recording.save(path)
