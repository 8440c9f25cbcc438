"""The least that watching could cost: every number that the default level speaks of has to be read once."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from benchmarks.paired import wait
from benchmarks.workloads import Task
from gradscope.probe.session import Session

BUFFER_BYTES = 256 << 20
"""Larger than any cache."""
READS = 10


def least_bytes(task: Task) -> int:
    """Return the bytes that have to be read once, whichever way it is done.

    They are those of every module's output and its gradient (each tensor once, however many modules return it), of
    every parameter's gradient, and of the gradient through every residual branch.
    """
    session = Session(task.model, "default", Path.cwd())
    task.model.zero_grad(set_to_none=True)
    with session.step(0) as watch:
        with watch.forward():
            loss = task.loss()
        loss.backward()
        outputs = {id(output): output.num_elements for found in watch.outputs.of_call.values() for output in found}
        assert watch.stream is not None
        assert watch.stream.structure is not None
        sums = [station.num_elements or 0 for station in watch.stream.structure.stations if station.is_sum]
    parameters = sum(parameter.numel() for parameter in task.model.parameters())
    return 4 * (2 * sum(outputs.values()) + sum(sums) + parameters)


def bytes_per_second(device: torch.device) -> float:
    """Return how fast the device reads memory when all it does is take a norm."""
    buffer = torch.ones(BUFFER_BYTES // 4, device=device)
    best = float("inf")
    for _ in range(READS):
        wait(device)
        start = time.perf_counter()
        torch.linalg.vector_norm(buffer)
        wait(device)
        best = min(best, time.perf_counter() - start)
    return BUFFER_BYTES / best


def limit_ratio(task: Task, plain_s: float, bandwidth: float) -> float:
    """Return the ratio to the plain step of reading everything once on top of it."""
    return 1 + least_bytes(task) / bandwidth / plain_s
