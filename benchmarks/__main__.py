"""What watching costs, as ratios against the plain step: python -m benchmarks.

All ratios are medians of pairs measured in turn in one process; the quartiles say how far to trust them.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

import torch

from benchmarks.graph_size import BLOCKS, analysis_seconds, slope
from benchmarks.paired import Ratio, paired
from benchmarks.startup import startup_lines
from benchmarks.watching import bare_steps, plain_step, sampled_steps, watched_step
from benchmarks.workloads import WORKLOADS, Workload

SAMPLED_EVERY = 100
SAMPLED_REPEATS = 3
LEVELS = ("params", "default", "deep")


def main() -> int:
    """Run the benchmarks and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--budget-s", type=float, default=1e9, help="start no further workload after so many seconds")
    parser.add_argument("--output", type=Path, help="also write the table to this Markdown file")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device(options.device)
    lines = [_header(device), "", *_workload_table(device, options.only, options.budget_s)]
    if not options.only and device.type == "cpu":
        lines += ["", *_graph_table(), "", *startup_lines()]
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")
    return 0


def _say(line: str) -> str:
    print(line, flush=True)
    return line


def _header(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
    threads = torch.get_num_threads()
    return _say(f"{time.strftime('%Y-%m-%d')} · torch {torch.__version__} · {name} · {threads} thread(s)")


def _workload_table(device: torch.device, only: str, budget_s: float) -> list[str]:
    lines = [
        _say("| workload | plain step | params | default | deep | every 100th |"),
        _say("| --- | --- | --- | --- | --- | --- |"),
    ]
    start = time.perf_counter()
    chosen = (workload for workload in WORKLOADS if only in workload.name)
    lines += [_say(_row(workload, device)) for workload in chosen if time.perf_counter() - start < budget_s]
    return lines


def _row(workload: Workload, device: torch.device) -> str:
    model, loss = workload.build(device)
    plain = plain_step(model, loss)
    ratios = [paired(plain, watched_step(model, loss, level), workload.repeats, device) for level in LEVELS]
    sampled = paired(
        bare_steps(model, loss, SAMPLED_EVERY), sampled_steps(model, loss, SAMPLED_EVERY), SAMPLED_REPEATS, device
    ) if ratios[0].plain_s < 0.1 else None  # fmt: skip
    cells = [*map(_cell, ratios), _cell(sampled) if sampled else "–"]
    return f"| {workload.name}: {workload.what} | {ratios[0].plain_s * 1e3:.1f} ms | {' | '.join(cells)} |"


def _cell(ratio: Ratio) -> str:
    return f"{ratio.median:.3f} ({ratio.low:.3f}–{ratio.high:.3f})"


def _graph_table() -> list[str]:
    points = [analysis_seconds(num_blocks) for num_blocks in BLOCKS]
    lines = [_say("| graph nodes | analysis |"), _say("| --- | --- |")]
    lines += [_say(f"| {nodes} | {seconds * 1e3:.1f} ms |") for nodes, seconds in points]
    lines += ["", _say(f"Slope on log-log paper: {slope(points):.2f} (1 is linear).")]
    return lines


if __name__ == "__main__":
    sys.exit(main())
