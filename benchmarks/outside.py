"""A model of 2,000 blocks: what of an inspection is not the model's own eleven steps."""

from __future__ import annotations

import time

import torch

from benchmarks.growth import mlp_subject
from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings

NUM_BLOCKS, WIDTH, BATCH = 2000, 256, 128


def outside_lines() -> list[str]:
    """Return a Markdown table of one inspection's CPU seconds (each run is made once) against those of bare steps."""
    bare = _bare_seconds()
    lines = [f"| {NUM_BLOCKS:,} blocks x {WIDTH}, batch {BATCH}, eleven steps | CPU seconds | not the model's own |"]
    lines += ["| --- | --- | --- |"]
    for words, settings in (
        ("params", ProbeSettings(level="params")),
        ("default, without the Jacobian's passes", ProbeSettings(jacobian=False)),
        ("default", ProbeSettings()),
    ):
        start = time.process_time()
        measure(mlp_subject(NUM_BLOCKS, WIDTH, BATCH), settings)
        seconds = time.process_time() - start
        lines.append(f"| {words} | {seconds:.1f} | {1 - bare / seconds:.1%} |")
    return lines


def _bare_seconds() -> float:
    start = time.process_time()
    subject = mlp_subject(NUM_BLOCKS, WIDTH, BATCH)
    (batch,) = subject.batches
    optimizer = torch.optim.Adam(subject.model.parameters(), lr=1e-3)
    for _ in range(ProbeSettings().num_steps):
        optimizer.zero_grad()
        subject.loss(subject.call(batch), batch).backward()
        optimizer.step()
    return time.process_time() - start
