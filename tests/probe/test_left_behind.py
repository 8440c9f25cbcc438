"""Models that keep state in plain Python: each step is that of a bare loop, and nothing is left behind."""

from __future__ import annotations

import functools
import random
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import gradscope
from gradscope.probe.seeding import seed_everything

D = 6
Between = Callable[[Any, Tensor], Tensor]
MODELS: dict[str, tuple[Callable[[Any], None], Between]] = {}


class Net(nn.Module):
    """Two layers with something in between."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(D, D), nn.Linear(D, 3)
        self.name = name
        MODELS[name][0](self)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(MODELS[self.name][1](self, torch.tanh(self.a(x))))


def keeps(**state: Callable[[], Any]) -> Callable[[Between], Between]:
    """Register a model that starts with this in its attributes."""

    def register(between: Between) -> Between:
        def start(model: nn.Module) -> None:
            for name, make in state.items():
                setattr(model, name, make())

        MODELS[between.__name__] = start, between
        return between

    return register


class Slotted:
    __slots__ = ("count", "later")

    def __init__(self) -> None:
        self.count = 0


class Counted(list[int]):
    total = 0


class Equal(nn.Module):
    """Equal to every other one: `model.parameters()` has those of the first only."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(D, D)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x)


def added(items: list[int], h: Tensor) -> Tensor:
    items.append(1)
    return h / len(items)


def counting_hook() -> Callable[..., Tensor]:
    count, seen = 0, []

    def hook(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        nonlocal count
        count += 1
        seen.append(output.detach().mean())
        return output * (1 + 1 / count)

    return hook


@keeps(count=int, nested=lambda: {"a": [Counter()]})
def counter(m: Any, h: Tensor) -> Tensor:
    m.count += 1
    m.nested["a"][0]["b"] += 1
    return h / m.count / m.nested["a"][0]["b"]


@keeps(hooked=bool)
def hooks_of_the_first_forward(m: Any, h: Tensor) -> Tensor:
    if not m.hooked:
        m.hooked = True
        m.b.register_forward_hook(lambda _, __, output: 1.5 * output)
    return h


@keeps(kept=Slotted, items=Counted)
def slots_and_subclasses(m: Any, h: Tensor) -> Tensor:
    m.kept.count += 1
    m.kept.later = h.detach()
    m.items.append(1)
    m.items.total = len(m.items)
    return h / m.kept.count / m.items.total


@keeps(bank=lambda: torch.zeros(8, D), array=lambda: np.zeros(4), queue=lambda: deque(maxlen=3))
def banks(m: Any, h: Tensor) -> Tensor:
    m.array[m.array.argmin()] += 1
    m.bank[int(m.array.sum()) % 8] = h.detach().mean(0)
    m.queue.append(h.detach().mean())
    return h + m.bank.mean(0) + sum(m.queue)


@keeps(cache=OrderedDict, turn=int)
def least_recently_used(m: Any, h: Tensor) -> Tensor:
    m.turn += 1
    key = m.turn % 3
    m.cache.setdefault(key, torch.randn(D))
    m.cache.move_to_end(key)
    if len(m.cache) > 2:
        m.cache.popitem(last=False)
    return h + next(iter(m.cache.values()))


@keeps(torch_own=lambda: torch.Generator().manual_seed(4), own=lambda: random.Random(3),
       numpy_own=lambda: np.random.default_rng(3))  # fmt: skip
def generators(m: Any, h: Tensor) -> Tensor:
    drawn = torch.rand(h.shape, generator=m.torch_own) * m.own.random() * m.numpy_own.random()
    return h * drawn * random.random() * np.random.rand() * torch.rand(1)


@keeps(wide=lambda: torch.zeros(1).expand(D), moved=lambda: torch.zeros(3))
def tensors_of_every_kind(m: Any, h: Tensor) -> Tensor:
    if "mask" not in m._buffers:
        m.register_buffer("mask", torch.ones(1, 1).expand(4, D))
    m.moved.data = h.detach().mean(0)
    return h * m.mask + m.wide + m.moved


@keeps()
def bound_anew(m: Any, h: Tensor) -> Tensor:
    if "late" not in m._buffers:
        m.register_buffer("late", torch.randn(D))
    m.late = 0.9 * m.late + 0.1 * h.detach().mean(0)
    return h - m.late


@keeps(more=lambda: None)
def made_in_the_forward(m: Any, h: Tensor) -> Tensor:
    if m.more is None:
        m.more = nn.Linear(D, D)
    return h + m.more(h.detach())


@keeps(hidden=lambda: [nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D))])
def modules_in_a_list(m: Any, h: Tensor) -> Tensor:
    return h + m.hidden[0](h)


@keeps(seen=weakref.WeakKeyDictionary, reduce=lambda: functools.partial(added, []))
def weak_and_partial(m: Any, h: Tensor) -> Tensor:
    m.seen[m.a] = m.seen.get(m.a, 0) + 1
    return m.reduce(h) / m.seen[m.a]


@keeps(inner=lambda: torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5))
def rate_of_an_optimizer(m: Any, h: Tensor) -> Tensor:
    m.inner.param_groups[0]["lr"] *= 0.9
    return h * m.inner.param_groups[0]["lr"]


@keeps(one=Equal, other=Equal)
def equal_modules(m: Any, h: Tensor) -> Tensor:
    return m.one(h) * m.other(h)


@keeps(scale=lambda: nn.Parameter(torch.ones(D)), ready=bool)
def first_batch_decides(m: Any, h: Tensor) -> Tensor:
    if not m.ready:
        with torch.no_grad():
            m.scale.copy_(1 / (h.std(0) + 0.1))
        m.ready = True
    return nn.functional.dropout(h * m.scale, 0.2)


@keeps(count=int)
def own_dispatch_mode(m: Any, h: Tensor) -> Tensor:
    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            m.count += 1
            return func(*args, **kwargs or {})

    with Counting():
        h = m.a(h) + h
    return h / m.count


@keeps()
def part_in_inference_mode(m: Any, h: Tensor) -> Tensor:
    with torch.inference_mode():
        aside = m.a(h[:, :D]) + h
    return h + aside.clone()


def _hooked(model: Any) -> None:
    model.a.register_forward_hook(counting_hook())


MODELS["hook_with_a_memory"] = _hooked, lambda m, h: h


def digest(value: Any, seen: set[int] | None = None) -> Any:
    """Everything that can be reached from an object, to be compared."""
    seen = set() if seen is None else seen
    if isinstance(value, Tensor):
        grad = value.grad if value.is_leaf else None
        return value.tolist(), value.requires_grad, value.grad_fn is None, None if grad is None else grad.tolist()
    if isinstance(value, int | float | str | type | torch.dtype | weakref.ReferenceType | None):
        return value
    if id(value) in seen:
        return None
    seen.add(id(value))
    if isinstance(value, dict | weakref.WeakKeyDictionary):
        items = [(key if type(key) is str else None, digest(item, seen)) for key, item in value.items()]
        return items, inside(value, seen)
    if isinstance(value, list | tuple | deque):
        return [digest(item, seen) for item in value], inside(value, seen)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, functools.partial):
        return digest(value.args, seen)
    cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    slots = [digest(getattr(value, name, None), seen) for name in Slotted.__slots__ if isinstance(value, Slotted)]
    return type(value), slots, digest(cells, seen), inside(value, seen)


def inside(value: Any, seen: set[int]) -> Any:
    return [(key, digest(item, seen)) for key, item in sorted(getattr(value, "__dict__", {}).items())]


def built(name: str) -> Net:
    seed_everything(7)
    return Net(name)


def loop(model: nn.Module, x: Tensor) -> list[float]:
    seed_everything(0)
    losses: list[float] = []
    for _ in range(11):
        loss = model(x).square().mean()
        if not losses:  # the parameters that the first forward has made are trained as well
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def random_states() -> Any:
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


@pytest.mark.parametrize("name", MODELS)
def test_steps_are_those_of_a_bare_loop_and_nothing_is_left_behind(name: str) -> None:
    x = torch.randn(4, D, generator=torch.Generator().manual_seed(3))
    bare, watched, model = built(name), built(name), built(name)
    losses = loop(bare, x)
    bare_random = random_states()
    with gradscope.watch(watched):
        assert loop(watched, x) == losses
    assert random_states() == bare_random
    assert digest(watched) == digest(bare)
    before, before_random = digest(model), random_states()
    seen = gradscope.inspect(model, (x,), loss=lambda output, _: output.square().mean(), seed=0)
    assert [step["loss"] for step in seen.recording.rows("steps")] == [losses[0], losses[3], losses[10]]
    assert digest(model) == before
    assert random_states() == before_random
