"""The search for inputs on models whose forward is too slow, or needs too much memory, for what is tried first."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from gradscope.errors import InputsError
from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.search import Inferred, search_inputs
from gradscope.target.infer.trial import TooSlowError, attempt

BUDGET_S = 1.0
"""Time of a whole search; a trial on several samples gets a fifth of it, one on one sample two."""
WORDS: Candidate = (("ids", Guess("ids", (BATCH, 16), high=10)),)
PICTURE: Candidate = (("picture", Guess("float", (BATCH, 3, 64, 64))),)


class Clock:
    """Time that passes only where a model says so."""

    now = 0.0

    def pass_(self, seconds: float) -> None:
        """Let it pass."""
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put the clock in the place of the thread's."""
    clock = Clock()
    monkeypatch.setattr(time, "thread_time", lambda: clock.now)
    return clock


class Slow(nn.Module):
    """Two layers with a computation between them that takes as long as it has samples; it hides its failures."""

    def __init__(self, clock: Clock, seconds_a_sample: float) -> None:
        super().__init__()
        self.clock = clock
        self.first, self.second = nn.Embedding(10, 4), nn.Linear(4, 1)
        self.seconds = seconds_a_sample
        self.sizes: list[int] = []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return one number for each token."""
        self.sizes.append(len(ids))
        hidden = self.first(ids)
        self.clock.pass_(self.seconds * len(ids))
        try:
            return torch.as_tensor(self.second(hidden))
        except Exception:
            return torch.as_tensor(hidden.sum(-1, keepdim=True))


class Painter(nn.Module):
    """Convolutions that take as long as the picture has pixels."""

    def __init__(self, clock: Clock, seconds_a_pixel: float) -> None:
        super().__init__()
        self.clock = clock
        self.layers = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(10))
        self.seconds = seconds_a_pixel

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Return a map."""
        for layer in self.layers:
            self.clock.pass_(self.seconds * picture.shape[-1] ** 2 / len(self.layers))
            picture = layer(picture)
        return picture


class Hungry(nn.Module):
    """A layer that finds no memory for more than two samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return hidden states."""
        if len(ids) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8388608000 bytes.")
        return torch.as_tensor(self.layer(ids))


def search(model: nn.Module, candidate: Candidate) -> Inferred:
    return search_inputs(model, lambda: None, "a model", [(0.0, candidate)], most_seconds=BUDGET_S)


def test_a_forward_that_takes_too_long_is_stopped_and_no_except_of_the_model_hides_it(clock: Clock) -> None:
    outcome = attempt(Slow(clock, 0.1), (torch.zeros(2, 3, dtype=torch.int64),), most_seconds=0.05)
    assert isinstance(outcome.error, TooSlowError)
    assert outcome.too_much
    assert outcome.failed_in is not None
    assert outcome.failed_in.name == "second"


def test_where_the_first_batch_is_too_slow_fewer_samples_are_tried(clock: Clock) -> None:
    model = Slow(clock, 0.06)
    found = search(model, WORDS)
    assert model.sizes[:2] == [4, 2]
    assert found.outcome.worked
    assert tuple(found.batch[0].shape) == (8, 16)  # the layers themselves are cheap


def test_where_one_sample_is_too_slow_its_sides_are_halved(clock: Clock) -> None:
    found = search(Painter(clock, 0.5 / 64**2), PICTURE)
    assert tuple(found.batch[0].shape[1:]) == (3, 32, 32)


def test_a_search_whose_every_trial_is_too_slow_ends(clock: Clock) -> None:
    with pytest.raises(InputsError, match="took too long"):
        search(Slow(clock, 0.5), WORDS)
    assert clock.now < 4.0 * BUDGET_S


def test_where_there_is_no_memory_for_the_first_batch_fewer_samples_are_tried() -> None:
    assert len(search(Hungry(), WORDS).batch[0]) == 2
