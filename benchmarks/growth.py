"""How the parts that do not belong to the model's own step grow: graph analysis, record and report."""

from __future__ import annotations

import math
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.workloads import ResidualMLP
from gradscope.probe.session import Session
from gradscope.target.subject import Origin, Subject

BLOCKS = (10, 100, 1000, 10_000)
"""About 10^2 to 10^5 graph nodes: a residual block of the MLP has ten."""
NODES_PER_BLOCK = 10
RECORDS = ((30, 3), (300, 3), (30, 30), (300, 30))
"""Blocks and watched steps of the runs whose records and reports are weighed."""


def growth_lines() -> list[str]:
    """Return Markdown tables of the analysis against graph nodes, and of record and report against layers x steps."""
    analysis_seconds(BLOCKS[0])  # what is loaded and set up once is no part of it
    points = [analysis_seconds(num_blocks) for num_blocks in BLOCKS]
    lines = ["| graph nodes | analysis | per node |", "| --- | --- | --- |"]
    lines += [f"| {nodes:,} | {seconds * 1e3:.1f} ms | {seconds / nodes * 1e6:.1f} µs |" for nodes, seconds in points]
    steps = ", ".join(f"{slope([a, b]):.2f}" for a, b in pairwise(points))
    lines += ["", f"Slope on log-log paper: {slope(points):.2f} (1 is linear); from point to point {steps}."]
    lines += ["", "| blocks x watched steps | numbers | record | saved in | report | written in |", "|" + " --- |" * 6]
    return lines + [_record_line(num_blocks, num_steps) for num_blocks, num_steps in RECORDS]


def analysis_seconds(num_blocks: int) -> tuple[int, float]:
    """Return the graph's number of nodes and the CPU seconds a first watched step takes beyond a later one."""
    torch.manual_seed(0)
    model = ResidualMLP(num_blocks, width=8)
    session = Session(model, "default", Path.cwd())
    seconds = [_step(model, session, number) for number in range(3)]
    return NODES_PER_BLOCK * num_blocks, max(1e-6, seconds[0] - min(seconds[1:]))


def slope(points: list[tuple[int, float]]) -> float:
    """Fit log seconds against log nodes by least squares; 1 is linear."""
    xs, ys = [math.log(n) for n, _ in points], [math.log(s) for _, s in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)


def _step(model: torch.nn.Module, session: Session, number: int) -> float:
    inputs, labels = torch.randn(4, 32), torch.arange(4)
    start = time.process_time()
    with session.step(number) as watch:
        with watch.forward():
            loss = F.cross_entropy(model(inputs), labels)
        handle = watch.rows.keep(loss)
        loss.backward()
    session.record(number, watch, None, None, handle)
    return time.process_time() - start


def mlp_subject(num_blocks: int, width: int, batch: int = 4) -> Subject:
    """Return a residual MLP with one batch, as a target that could be inspected."""
    torch.manual_seed(0)
    made = Origin("made by the benchmark")
    labels = torch.arange(batch) % 10
    return Subject(
        ResidualMLP(num_blocks, width), [torch.randn(batch, 32)], lambda output, _: F.cross_entropy(output, labels),
        f"{num_blocks} blocks", made, made,
    )  # fmt: skip


def _record_line(num_blocks: int, num_steps: int) -> str:
    from gradscope.probe import measure
    from gradscope.probe.settings import ProbeSettings
    from gradscope.report.html import write
    from gradscope.rules import diagnose

    settings = ProbeSettings(num_steps=num_steps, watched_steps=tuple(range(num_steps)), jacobian=False)
    subject = mlp_subject(num_blocks, width=8)
    recording = measure(subject, settings)
    numbers = sum(len(values) for table in recording.tables.values() for values in table.values())
    with tempfile.TemporaryDirectory() as folder:
        run, page = Path(folder, "run.json.gz"), Path(folder, "report.html")
        start = time.perf_counter()
        recording.save(run)
        saved = time.perf_counter()
        write(recording, diagnose(recording), page)
        written = time.perf_counter()
        return (
            f"| {num_blocks} x {num_steps} | {numbers:,} | {run.stat().st_size / 1e6:.2f} MB | {saved - start:.2f} s "
            f"| {page.stat().st_size / 1e6:.2f} MB | {written - saved:.2f} s |"
        )
