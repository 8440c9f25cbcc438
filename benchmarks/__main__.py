"""What watching costs, as ratios against the plain step: python -m benchmarks.

All ratios are medians of pairs measured in turn in one process; the quartiles say how far to trust them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from benchmarks.growth import growth_lines
from benchmarks.limit import bytes_per_second, limit_ratio
from benchmarks.memory import peak_ratio
from benchmarks.outside import outside_lines
from benchmarks.paired import PAIRS_S, paired
from benchmarks.printed import header, say
from benchmarks.startup import startup_lines
from benchmarks.watching import bare_steps, plain_step, sampled_steps, unwatched_loop, watched_loop, watched_step
from benchmarks.workloads import WORKLOADS, Workload
from gradscope.probe.settings import Level

SAMPLED_EVERY = 100
"""Steps of which one is watched in a long run."""
LONGEST_PLAIN_S = 0.15
"""A hundred steps of a slower network are not taken over and over to see 1/100 of a difference."""
CHUNK_S = 1.0
"""Steps that are not watched are timed so many seconds at once."""
LEVELS: tuple[Level, ...] = ("params", "default", "deep")
COLUMNS = (
    "workload", "plain step", "params", "default", "limit", "deep", "every 100th", "first hundred", "peak memory",
    "over the aim by",
)  # fmt: skip
TARGETS = {"params": 1.01, "default": 1.03, "every 100th": 1.002, "memory": 1.03}
"""Aims, as ratios to the plain step."""
OWN_TARGETS = {"resnet50": 1.07, "llama-tiny-batch": 1.20}
"""Aims of the default level where a step does little work for each number that has to be read."""


def main() -> int:
    """Run the benchmarks and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="workloads whose name contains this, and nothing else")
    parser.add_argument("--pairs-s", type=float, default=PAIRS_S, help="seconds of pairs for each ratio")
    parser.add_argument("--budget-s", type=float, default=1e9, help="start no further workload after so many seconds")
    parser.add_argument("--output", type=Path, help="also write everything to this Markdown file")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device(options.device)
    lines = [say(header(device)), ""]
    lines += _workload_table(device, options.only, options.pairs_s, options.budget_s)
    if not options.only and device.type == "cpu":
        for table in (growth_lines, startup_lines, outside_lines):
            lines += ["", *map(say, table())]
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")
    return 0


def _workload_table(device: torch.device, only: str, pairs_s: float, budget_s: float) -> list[str]:
    bandwidth = bytes_per_second(device)
    lines = [
        say(f"Memory is read at {bandwidth / 1e9:.0f} GB/s."),
        "",
        say(f"| {' | '.join(COLUMNS)} |"),
        say("|" + " --- |" * len(COLUMNS)),
    ]
    start = time.perf_counter()
    chosen = (workload for workload in WORKLOADS if only in workload.name)
    return lines + [
        say(_row(workload, device, pairs_s, bandwidth))
        for workload in chosen
        if time.perf_counter() - start < budget_s
    ]


def _row(workload: Workload, device: torch.device, pairs_s: float, bandwidth: float) -> str:
    task = workload.build(device)
    plain = plain_step(task)
    ratios = {level: paired(plain, watched_step(task, level), device, pairs_s) for level in LEVELS}
    plain_s = ratios["default"].plain_s
    limit = limit_ratio(task, plain_s, bandwidth)
    found = {"params": ratios["params"].median, "default": ratios["default"].median}
    found["every 100th"], sampled = _in_the_long_run(workload, device, pairs_s, plain_s)
    first = "–"
    if plain_s < LONGEST_PLAIN_S:
        first = str(paired(bare_steps(task, SAMPLED_EVERY), sampled_steps(task, SAMPLED_EVERY), device, pairs_s))
    found["memory"] = peak_ratio(workload.name, "default", device)
    cells = [
        f"{workload.name}: {workload.what}", f"{plain_s * 1e3:.1f} ms", str(ratios["params"]), str(ratios["default"]),
        f"{limit:.3f}", str(ratios["deep"]), sampled, first, f"{found['memory']:.3f}", _missed(workload.name, found),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _in_the_long_run(workload: Workload, device: torch.device, pairs_s: float, plain_s: float) -> tuple[float, str]:
    """Return what a step of a loop costs of which every hundredth is watched, and both kinds of step in words."""
    with watched_loop(workload.build(device)) as step:
        each = paired(bare_steps(workload.build(device), 1), step, device, pairs_s)
    with unwatched_loop(workload.build(device), max(1, round(CHUNK_S / plain_s))) as (bare, unwatched):
        other = paired(bare, unwatched, device, pairs_s)
    average = ((SAMPLED_EVERY - 1) * other.median + each.median) / SAMPLED_EVERY
    return average, f"{average:.3f}: {each} once, {other} 99 times"


def _missed(name: str, found: dict[str, float]) -> str:
    targets = TARGETS | ({"default": OWN_TARGETS[name]} if name in OWN_TARGETS else {})
    over = {what: ratio - targets[what] for what, ratio in found.items() if ratio > targets[what]}
    return ", ".join(f"{what} {excess:.3f}" for what, excess in over.items()) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
