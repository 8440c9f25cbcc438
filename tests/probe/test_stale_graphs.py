"""Models that keep tensors with their graph from one step to the next: a plain loop raises at its second step."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradscope
from gradscope.errors import ModelError

D = 6


class Net(nn.Module):
    """Keeps something of `h`, and uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(5, D), nn.Linear(D, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.kept(torch.tanh(self.inp(x))))

    def kept(self, h: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Cache(Net):
    """A cache of what weights give, behind an object of its own."""

    class Store:
        __slots__ = ("entries",)

        def __init__(self) -> None:
            self.entries: dict[str, torch.Tensor] = {}

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.store = nn.Linear(D, D), self.Store()

    def kept(self, h: torch.Tensor) -> torch.Tensor:
        if "keys" not in self.store.entries:
            self.store.entries["keys"] = torch.tanh(self.keys.weight)
        return h @ self.store.entries["keys"]


class Hooked(Cache):
    """A cache in a model that hooks into its children in the first forward, and notes that it has."""

    hooked = False

    def kept(self, h: torch.Tensor) -> torch.Tensor:
        if not self.hooked:
            self.hooked = True
            self.out.register_forward_hook(lambda _, __, output: 1.5 * output)
        return super().kept(h)


class Queue(Net):
    """A memory bank that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.bank: deque[torch.Tensor] = deque(maxlen=3)

    def kept(self, h: torch.Tensor) -> torch.Tensor:
        self.bank.append(h)
        return torch.stack(list(self.bank)).mean(0)


class State(Net):
    """A hidden state that is carried on."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.state = nn.GRUCell(D, D), torch.zeros(4, D)

    def kept(self, h: torch.Tensor) -> torch.Tensor:
        self.state = self.cell(h, self.state)
        return self.state


class Average(Net):
    """A running mean in a buffer that is bound anew."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(D))

    def kept(self, h: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * torch.sigmoid(h).mean(0)
        return h - self.mean


class Built(Net):
    """A weight that was computed when the model was built."""

    def __init__(self) -> None:
        super().__init__()
        self.made = torch.tanh(self.inp.weight[:, :1])

    def kept(self, h: torch.Tensor) -> torch.Tensor:
        return h * self.made.T


class Hidden(Net):
    """Kept where nobody looks."""

    def kept(self, h: torch.Tensor) -> torch.Tensor:
        ELSEWHERE.append(torch.tanh(h))
        return h + ELSEWHERE[0]


ELSEWHERE: list[torch.Tensor] = []


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 5, generator=generator), torch.randint(3, (4,), generator=generator)


def inspected(model: nn.Module) -> Any:
    x, y = batch()
    return gradscope.inspect(model, (x,), loss=lambda output, _: F.cross_entropy(output, y), seed=0)


def losses(model: nn.Module, between: Any) -> list[float]:
    """The losses of steps 0, 3 and 10 of a plain loop that does something between its steps."""
    x, y = batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    found = []
    for _ in range(11):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        between(model)
        found.append(loss.item())
    return [found[0], found[3], found[10]]


def empty(model: Any) -> None:
    model.store.entries.clear()


def clear(model: Any) -> None:
    model.bank.clear()


def detach(model: Any) -> None:
    model.state = model.state.detach()


def detach_buffer(model: Any) -> None:
    model.mean = model.mean.detach()


@pytest.mark.parametrize(
    ("kind", "place", "remedy"),
    [
        (Cache, "store", empty),
        (Hooked, "store", empty),
        (Queue, "bank", clear),
        (State, "state", detach),
        (Average, "mean", detach_buffer),
    ],
)
def test_steps_go_on_as_with_the_remedy(kind: type[Net], place: str, remedy: Any) -> None:
    """A cache is emptied between steps, a state goes on detached; the finding names the attribute."""
    torch.manual_seed(0)
    model = kind()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    kept = {key: value for key, value in vars(model).items() if not key.startswith("_")}
    found = inspected(model)
    assert [step["loss"] for step in found.recording.rows("steps")] == losses(_copy(kind), remedy)
    (finding,) = [finding for finding in found.diagnosis.findings if finding.code == "GS504"]
    assert finding.evidence == {"attribute": place, "step": 1}
    assert found.diagnosis.verdict == "at-risk"
    assert any(place in what for what in found.recording.tables["confessions"]["what"])
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in weights.items())
    assert {key: value for key, value in vars(model).items() if not key.startswith("_")} == kept
    with pytest.raises(RuntimeError, match=r"second time|inplace"):
        losses(_copy(kind), lambda _: None)


def _copy(kind: type[Net]) -> Net:
    torch.manual_seed(0)
    return kind()


def test_a_graph_that_was_built_with_the_model_ends_the_run_after_the_first_step() -> None:
    found = inspected(_copy(Built))
    assert found.recording.watched_steps == [0]
    assert [finding.evidence for finding in found.diagnosis.findings if finding.code == "GS504"] == [
        {"attribute": "made", "step": 1}
    ]
    told = dict(zip(*(found.recording.tables["confessions"][column] for column in ("what", "why")), strict=True))
    assert told["steps 3, 10"] == "the backward pass of step 1 raised"


def test_what_is_kept_elsewhere_is_the_models_error() -> None:
    ELSEWHERE.clear()
    with pytest.raises(ModelError, match="The backward at step 1 raised"):
        inspected(_copy(Hidden))
    ELSEWHERE.clear()


def test_a_graph_that_no_backward_breaks_on_is_left_alone() -> None:
    """Sums save nothing: gradients go back through all steps, in a plain loop as well."""

    class Sums(Net):
        def __init__(self) -> None:
            super().__init__()
            self.shift, self.total = nn.Parameter(torch.ones(D)), torch.zeros(D)

        def kept(self, h: torch.Tensor) -> torch.Tensor:
            self.total = self.total + self.shift
            return h + self.total

    torch.manual_seed(0)
    found = inspected(Sums())
    torch.manual_seed(0)
    assert [step["loss"] for step in found.recording.rows("steps")] == losses(Sums(), lambda _: None)
    assert "GS504" not in [finding.code for finding in found.diagnosis.findings]
