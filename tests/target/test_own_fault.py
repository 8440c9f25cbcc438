"""Failures that no inputs mend end a trail at once; those that inputs mend do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.own_fault import is_own_fault
from gradscope.target.infer.search import search_inputs
from gradscope.target.infer.trials import NothingFitsError

PLAIN: Candidate = (("x", Guess("float", (BATCH, 4))),)
HELD: Candidate = (("x", Guess("object", value=None)),)


class Output:
    """What a layer returns."""


class Words:
    """A table of words that nobody gave."""

    def __init__(self) -> None:
        self.end: Any = None

    def ended(self, x: torch.Tensor) -> torch.Tensor:
        """End a text."""
        return x * self.end


class Lacking(nn.Module):
    """Reads what it does not have, whatever it is given."""

    def __init__(self, *, is_open: bool) -> None:
        super().__init__()
        self.layer, self.words, self.is_open = nn.Linear(4, 4), Words(), is_open
        self.calls = 0

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Fail behind the layer."""
        self.calls += 1
        x = self.layer(x)
        return self.words.ended(x) if self.is_open else x + Output().pictures  # type: ignore[attr-defined]


class Waiting(nn.Module):
    """Multiplies with an input that was left out."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Any = None

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Fail for want of a mask."""
        return x * mask if self.scale is None else x


def raised_by(model: nn.Module, *inputs: Any) -> BaseException:
    """Return what a forward raises."""
    with pytest.raises((AttributeError, TypeError)) as caught:
        model(*inputs)
    return caught.value


@pytest.mark.parametrize("is_open", [True, False])
def test_what_a_model_lacks_of_its_own_is_told_from_what_it_is_not_given(is_open: bool) -> None:
    assert is_own_fault(raised_by(Lacking(is_open=is_open), torch.ones(2, 4)), PLAIN)
    assert not is_own_fault(raised_by(Waiting(), torch.ones(2, 4)), PLAIN)


def test_an_object_among_the_inputs_may_be_the_one_that_lacks_something() -> None:
    assert not is_own_fault(raised_by(Lacking(is_open=False), torch.ones(2, 4)), HELD)


@pytest.mark.parametrize("is_open", [True, False])
def test_such_a_model_is_given_up_after_the_first_guess(is_open: bool) -> None:
    model = Lacking(is_open=is_open)
    with pytest.raises(NothingFitsError) as caught:
        search_inputs(model, lambda: None, "lacking", [(0.0, PLAIN)])
    assert caught.value.is_own
    assert model.calls == 1


class WithASwitch(nn.Module):
    """Lacks something only where it is given the sizes, which it can do without."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, sizes: torch.Tensor | None = None) -> torch.Tensor:
        """Fail with sizes, and with rows of another number than seven."""
        x = self.layer(x)
        if sizes is not None:
            return x + Output().pictures  # type: ignore[attr-defined]
        assert x.shape[1] >= 5, "five rows"
        assert x.shape[1] == 7, "seven rows"
        return self.last(x)


def test_a_fault_that_only_some_inputs_lead_to_does_not_end_the_search() -> None:
    plain = (("x", Guess("float", (BATCH, 3, 4))),)
    with_sizes = [(*plain, ("sizes", Guess("ids", (BATCH,), high=high))) for high in range(2, 8)]
    first = [(0.0, each) for each in (*with_sizes[:3], plain, *with_sizes[3:])]
    found = search_inputs(WithASwitch(), lambda: None, "it", first)
    assert found.batch[0].shape[1:] == (7, 4)
