"""Peak memory of a watched step against that of the plain one.

On the CPU each is a process of its own: how far the largest resident set lies above what was resident before the model
was built. On CUDA it is what the allocator counts.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import torch

from benchmarks.watching import Step, plain_step, watched_step
from benchmarks.workloads import WORKLOADS, Task

STEPS = 3
KIB = 1024


def peak_ratio(name: str, level: str, device: torch.device) -> float:
    """Return peak memory of watched steps over that of plain ones."""
    return _peak(name, level, device) / _peak(name, "plain", device)


def _peak(name: str, level: str, device: torch.device) -> int:
    if device.type == "cuda":
        return _take_steps(name, level, device)
    command = [sys.executable, "-m", "benchmarks.memory", name, level]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)


def _take_steps(name: str, level: str, device: torch.device) -> int:
    """Return the bytes at the peak of a few steps."""
    torch.manual_seed(0)
    before = _resident_bytes()
    task = next(workload for workload in WORKLOADS if workload.name == name).build(device)
    step = _step(task, level)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(STEPS):
        step()
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB - before


def _step(task: Task, level: str) -> Step:
    return plain_step(task) if level == "plain" else watched_step(task, level)  # type: ignore[arg-type]


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    print(_take_steps(sys.argv[1], sys.argv[2], torch.device("cpu")))
