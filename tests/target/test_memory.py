"""The search for inputs cannot take the machine's memory."""

from __future__ import annotations

import resource
import sys

import pytest
import torch
from torch import nn

from gradscope.errors import InputsError
from gradscope.target.infer import memory
from gradscope.target.infer.guess import BATCH, MOST_NUMBERS, Guess, is_sane
from gradscope.target.infer.search import search_inputs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux alone")
FREE = 2**29
MORE = FREE // 4
"""Float32 numbers that take all that is said to be free, twice what a trial may have."""


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: FREE)


class Hungry(nn.Module):
    """Makes as much as the numbers in its input say."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, rows):
        return self.out(rows[:, :4]) + torch.ones(MORE)[0]


def test_an_allocation_beyond_the_bound_fails_and_the_bound_is_gone_afterwards():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory.bounded():
        assert len(torch.ones(MORE // 8)) == MORE // 8
        with pytest.raises(RuntimeError, match="allocate memory"):
            torch.ones(MORE)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(torch.ones(MORE)) == MORE


def test_a_machine_that_does_not_tell_what_is_free_sets_no_bound(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(memory, "FREE", tmp_path / "nothing")
    with memory.bounded():
        assert len(torch.ones(MORE)) == MORE


def test_a_search_that_is_led_to_too_much_memory_ends_with_a_clear_line():
    model = Hungry()
    first = [(0.0, (("rows", Guess("float", (BATCH, 4))),))]
    with pytest.raises(InputsError, match="memory"):
        search_inputs(model, lambda: model, "Hungry", first, most_trials=3)


def test_inputs_are_bounded_together():
    half = Guess("float", (MOST_NUMBERS // 2,))
    assert is_sane((("a", half), ("b", half)))
    assert not is_sane((("a", half), ("b", half), ("c", Guess("float", (1,)))))


def test_what_is_free_is_told_in_bytes_and_within_a_container(monkeypatch, tmp_path):
    monkeypatch.undo()
    assert 2**20 < memory.free_bytes() < 2**50
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert memory.free_bytes() == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() > 2**20
