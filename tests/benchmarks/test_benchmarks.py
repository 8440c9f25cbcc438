"""The benchmarks run, and their arithmetic is right; what they measure is no test's business."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

from benchmarks import __main__ as bench
from benchmarks.growth import analysis_seconds, slope
from benchmarks.limit import least_bytes
from benchmarks.paired import Ratio, paired
from benchmarks.peers.ways import WAYS
from benchmarks.split import PARTS, Clock
from benchmarks.watching import plain_step, unwatched_loop, watched_loop, watched_step
from benchmarks.workloads import WORKLOADS, ResidualMLP, Task
from gradscope.probe.session import Session

CPU = torch.device("cpu")


@pytest.fixture
def task() -> Task:
    torch.manual_seed(0)
    return Task(ResidualMLP(3, width=8), torch.randn(4, 32), 10)


def test_a_ratio_is_that_of_the_median_pair() -> None:
    taken: list[str] = []
    ratio = paired(lambda: taken.append("a"), lambda: taken.append("b"), CPU, 0.0)
    assert ratio.low <= ratio.median <= ratio.high
    assert taken[4:] == ["a", "b", "b", "a", "a", "b", "b", "a", "a", "b"], "pairs alternate"


def test_the_least_is_each_tensor_once(task: Task) -> None:
    width, batch, blocks = 8, 4, 3
    outputs = width + blocks * 4 * width + 10  # stem, four layers a block (the container returns the last), head
    sums = blocks * width
    parameters = sum(p.numel() for p in task.model.parameters())
    # The model itself returns what its head returns.
    assert least_bytes(task) == 4 * (2 * batch * outputs + batch * sums + parameters)


def test_slope_of_a_power_law() -> None:
    assert slope([(10, 3.0), (100, 3.0 * 10**1.5), (1000, 3.0 * 100**1.5)]) == pytest.approx(1.5)
    assert analysis_seconds(5)[0] == 50


def test_a_watched_step_leaves_the_gradients_of_a_plain_one(task: Task) -> None:
    plain_step(task)()
    expected = [p.grad.clone() for p in task.model.parameters() if p.grad is not None]
    watched_step(task, "default")()
    assert all(torch.equal(a, p.grad) for a, p in zip(expected, task.model.parameters(), strict=True))


def test_a_loop_watches_all_of_its_steps_or_the_first_alone(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[int] = []
    step = Session.step

    def noted(self: Session, number: int) -> Any:
        watched.append(number)
        return step(self, number)

    monkeypatch.setattr(Session, "step", noted)
    with watched_loop(task) as further:
        further()
    assert watched == [0, 1, 2, 3], "and the one that would come next is waited for"
    watched.clear()
    with unwatched_loop(task, 3) as (bare, unwatched):
        bare()
        unwatched()
    assert watched == [0]
    assert not _global_optimizer_post_hooks


def test_each_part_is_timed_without_the_others_inside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr("benchmarks.split.time.process_time", lambda: float(next(now)))
    clock = Clock()
    inner = clock.timed("inner", lambda: None)
    clock.timed("outer", lambda: (inner(), inner()))()
    assert dict(clock.seconds) == {"inner": 2.0, "outer": 3.0}, "five ticks in all, of which the inner ones took two"


def test_the_parts_are_put_back(task: Task) -> None:
    before = [getattr(kind, name) for _, kind, names in PARTS for name in names]
    clock, step = Clock(), watched_step(task, "default")
    with clock.running():
        step()
    assert set(clock.seconds) == {part for part, _, _ in PARTS}
    assert [getattr(kind, name) for _, kind, names in PARTS for name in names] == before


def test_the_aim_that_is_missed_is_named() -> None:
    assert bench._missed("gpt2", {"params": 1.0, "default": 1.03}) == "nothing"
    assert bench._missed("gpt2", {"params": 1.02, "default": 1.1}) == "params 0.010, default 0.070"
    assert bench._missed("resnet50", {"default": 1.06}) == "nothing"


def test_every_workload_can_be_built_on_the_meta_device() -> None:
    with torch.device("meta"):
        names = [w.name for w in WORKLOADS if w.build(torch.device("meta")).model is not None]
    assert names == ["gpt2", "resnet50", "vit-s", "lstm", "llama-tiny-batch", "mlp-1000"]


def test_a_tool_that_is_not_installed_is_said_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.peers import table

    missing = next(way for way in WAYS if way.package == "torchinstruments")
    monkeypatch.setitem(sys.modules, "torchinstruments", None)
    monkeypatch.setattr(table, "version", _no_version)
    small = next(w for w in WORKLOADS if w.name == "lstm")
    assert table._cell(missing, small, 0.0) == "not installed"
    assert table._version(missing) == "cannot be installed"


def _no_version(_: str) -> str:
    raise PackageNotFoundError


def test_ratios_show_their_quartiles() -> None:
    assert str(Ratio(1.0309, 1.0, 1.05, 0.1, 5)) == "1.031 (1.000–1.050)"
    assert str(Ratio(15.2, 15.2, 15.2, 0.1, 1)) == "15.200 (one pair)"
