"""Small networks of many kinds, with the number of residual additions that is known from writing them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.structure.watching import explicit_flows, structure_of, watched

D, T = 8, 6
"""Width and number of tokens."""
TOLERANCE = 1e-9


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))


class Net(nn.Module):
    """Layers, and a forward that uses them on a stream of shape (batch, tokens, width)."""

    def __init__(self, step: Callable[[Net, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(D, D), nn.Linear(D, 3)
        self.f, self.g, self.h = mlp(), mlp(), mlp()
        self.l = nn.ModuleList(nn.Linear(D, D) for _ in range(6))
        self.n = nn.LayerNorm(D)
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)
        self.c = nn.ModuleList(nn.Conv1d(D, D, 3, padding=1) for _ in range(4))
        self.down, self.up = nn.Conv1d(D, D, 2, 2), nn.ConvTranspose1d(D, D, 2, 2)
        self.bn = nn.ModuleList(nn.BatchNorm1d(D) for _ in range(4))
        self.scale = nn.Parameter(torch.full((D,), 0.1))
        self.tokens = nn.Parameter(torch.randn(1, 1, D))
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.step(self, self.inp(x)))


# Residual additions ---------------------------------------------------------------------------------------------------


def mean_of_stack(m: Net, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, m.f(x)]).mean(0)


def pooling_less_the_stream(m: Net, x: torch.Tensor) -> torch.Tensor:
    pooled = F.avg_pool1d(x.mT, 3, 1, 1).mT
    return x + m.scale * (pooled - x)


def dual_path_with_projection(m: Net, x: torch.Tensor) -> torch.Tensor:
    """The first block projects its skip behind a norm and an activation of its own, the next adds to its sum."""
    y = x.mT
    stream = m.c[0](F.relu(m.bn[0](y))) + m.c[1](F.relu(m.bn[2](m.c[2](F.relu(m.bn[1](y))))))
    return (stream + m.c[3](F.relu(m.bn[3](stream)))).mT


def projected_beside_a_residual_of_its_own(m: Net, x: torch.Tensor) -> torch.Tensor:
    h = m.n(x)
    q, k, v = m.l[0](h), m.l[1](h), m.l[2](h)
    inner = q + (q @ k.mT).softmax(-1) @ v
    y = m.l[3](h) + m.l[4](inner)
    return y + m.f(m.n(y))


def attention_at_half_the_resolution(m: Net, x: torch.Tensor) -> torch.Tensor:
    coarse = m.down(x.mT).mT
    coarse = m.attention(coarse, coarse, coarse)[0]
    return x + F.interpolate(coarse.mT, scale_factor=2).mT


def class_token_that_attends(m: Net, x: torch.Tensor) -> torch.Tensor:
    token = m.tokens.expand(len(x), -1, -1)
    seen = m.n(torch.cat([token, x], 1))
    token = token + m.scale * m.attention(seen[:, :1], seen, seen)[0]
    return token + m.f(m.n(token))


def coupling_of_two_halves(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, b = torch.cat([x, m.l[0](x)], -1).chunk(2, -1)
    a = a + m.f(b)
    b = b + m.g(a)
    return torch.maximum(a, b)


def additive_u_net(m: Net, x: torch.Tensor) -> torch.Tensor:
    y = F.relu(m.down(x.mT))
    return (x.mT + F.relu(m.up(y))).mT


def two_streams_that_attend_to_each_other(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, b = m.l[0](x), torch.tanh(m.l[1](x))[:, :4]
    a, b = a + m.attention(a, b, b)[0], b + m.attention(b, a, a)[0]
    return torch.cat([a + m.f(a), b + m.g(b)], 1)


def fused_sum_and_norm(m: Net, x: torch.Tensor) -> torch.Tensor:
    """Each layer adds the last one's output first: the stream is handed on beside it."""
    branch, stream = m.f(m.n(x)), x
    for layer in (m.g, m.h):
        stream = branch + stream
        branch = layer(m.n(stream))
    return branch + stream


def experts_into_the_stream(m: Net, x: torch.Tensor) -> torch.Tensor:
    """Each expert adds to its tokens of the stream itself."""
    tokens = m.n(x).reshape(-1, D)
    y = x.reshape(-1, D).clone()
    for i, expert in enumerate((m.f, m.g)):
        rows = torch.arange(i, len(tokens), 2)
        y.index_add_(0, rows, expert(tokens[rows]))
    return y.view_as(x)


def control_branch(m: Net, x: torch.Tensor) -> torch.Tensor:
    """A trunk, a copy of it that has a condition for input, and a layer from one to the other."""
    trunk, copy = x + m.f(x), m.l[0](x)
    copy = copy + m.g(copy)
    return trunk + m.l[1](copy)


def input_fed_to_every_block(m: Net, x: torch.Tensor) -> torch.Tensor:
    """The sum with the input is made on the branch; it is no stream."""
    z = torch.tanh(m.l[0](x))
    for _ in range(3):
        z = z + torch.tanh(m.l[1](m.n(z)) + x)
    return z


def input_beside_the_stream(m: Net, x: torch.Tensor) -> torch.Tensor:
    """What a block reads is the stream and the first input; the stream goes on without it."""
    z = x
    for layer in (m.f, m.g, m.h):
        z = z + layer(m.n(z + x))
    return z


def midpoint_rule(m: Net, x: torch.Tensor) -> torch.Tensor:
    """The half step is the input of the branch only, and the sum of the two slopes one of branches."""
    slope = torch.tanh(m.l[0](x))
    return x + 0.5 * (slope + torch.tanh(m.l[0](x + 0.1 * slope)))


# Look-alikes ----------------------------------------------------------------------------------------------------------


def two_cells_of_a_searched_network(m: Net, x: torch.Tensor) -> torch.Tensor:
    """Each operation begins with an activation and ends with a norm; a shallow one and a deep one are added."""
    y = x.mT
    deep = m.bn[1](m.c[0](F.relu(m.bn[0](m.c[1](F.relu(y))))))
    return torch.cat([deep + m.bn[2](m.c[2](F.relu(y))), y], 1).mT[..., :D]


def coarse_maps_brought_back(m: Net, x: torch.Tensor) -> torch.Tensor:
    """The coarse map goes on as well: a fusion of scales."""
    coarse = F.relu(m.down(x.mT))
    fine = x.mT + F.interpolate(coarse, scale_factor=2)
    return fine.mT + torch.relu(m.c[0](coarse)).mean()


def scan_from_a_zero_state(m: Net, x: torch.Tensor) -> torch.Tensor:
    u, delta = m.l[0](x), F.softplus(m.l[1](x))
    state, states = torch.zeros_like(u[:, 0]), []
    for t in range(T):
        state = torch.exp(-delta[:, t] * m.scale) * state + delta[:, t] * u[:, t]
        states.append(state)
    return torch.stack(states, 1) + m.scale * u


def mixture_of_two_branches(m: Net, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(m.l[0](x))
    return gate * m.f(x) + (1 - gate) * m.g(x)


COUNTS = {
    mean_of_stack: 1, pooling_less_the_stream: 1, dual_path_with_projection: 2,
    projected_beside_a_residual_of_its_own: 3, attention_at_half_the_resolution: 1, class_token_that_attends: 2,
    coupling_of_two_halves: 2, additive_u_net: 1, two_streams_that_attend_to_each_other: 4, fused_sum_and_norm: 3,
    experts_into_the_stream: 2, control_branch: 3, input_fed_to_every_block: 3, input_beside_the_stream: 3,
    midpoint_rule: 1,
    two_cells_of_a_searched_network: 0, coarse_maps_brought_back: 0, scan_from_a_zero_state: 0,
    mixture_of_two_branches: 0,
}  # fmt: skip


@pytest.mark.parametrize("step", COUNTS, ids=lambda step: step.__name__)
def test_count(step: Callable[[Net, torch.Tensor], torch.Tensor]) -> None:
    assert structure_of(Net(step), torch.randn(4, T, D)).num_residual == COUNTS[step]


@pytest.mark.parametrize("step", [step for step in COUNTS if COUNTS[step]], ids=lambda step: step.__name__)
def test_flows_are_exact_or_said_not_to_be(step: Callable[[Net, torch.Tensor], torch.Tensor]) -> None:
    if step is experts_into_the_stream or step is coupling_of_two_halves:
        pytest.skip("the oracle cannot follow a skip through a view or a part of a tensor")
    torch.manual_seed(0)
    seen = watched(Net(step).double(), torch.randn(4, T, D, dtype=torch.double), retain=True)
    expected = explicit_flows(seen.structure, seen.loss)
    for flow, plan, truth in zip(seen.flows, seen.structure.plans, expected, strict=True):
        if truth is not None and plan is not None and not plan.inexact:
            measured = [seen.number(handle) for handle in (flow.grad, flow.skip, flow.branch, flow.dot)]
            assert measured == pytest.approx(truth, rel=TOLERANCE, abs=TOLERANCE)


# On a raw input, which autograd does not know -------------------------------------------------------------------------


class OnRawInput(nn.Module):
    """Blocks of a single layer, the first of which adds to the input itself."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(D, D, dtype=dtype)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x + torch.tanh(F.linear(x, weight))
        return torch.view_as_real(x) if x.is_complex() else x


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_first_block_of_one_layer_on_a_raw_input(dtype: torch.dtype) -> None:
    assert structure_of(OnRawInput(dtype), torch.randn(4, T, D, dtype=dtype)).num_residual == 3


class OnViewOfData(nn.Module):
    """A view of the input is told to need a gradient, as speech models do for checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.f = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        view = x[:, None]
        view.requires_grad = True
        return view + self.f(view)


def test_a_view_of_data_that_is_told_to_need_a_gradient() -> None:
    assert structure_of(OnViewOfData(), torch.randn(4, T, D)).num_residual == 1


class Attending(nn.Module):
    """Cross-attention that adds to its query inside, and whose caller adds the query again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Inner(nn.Module):
    """Work on a stream, added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.f = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x) + x


def test_a_raw_input_is_added_twice() -> None:
    assert structure_of(Attending(), torch.randn(4, T, D)).num_residual == 2


# The stream -----------------------------------------------------------------------------------------------------------


class Attend(nn.Module):
    """Attention whose values are averaged with those of the first block."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.v = nn.LayerNorm(D), nn.Linear(D, D)

    def forward(self, x: torch.Tensor, first: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.n(x)
        value = self.v(h)
        first = value if first is None else first
        return x + (h @ h.mT).softmax(-1) @ (value + first), first


class SharedValues(nn.Module):
    """Blocks that are handed the first block's values: gradients have a way round every sum."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(D, D), nn.Linear(D, 3)
        self.blocks = nn.ModuleList(nn.ModuleDict({"attend": Attend(), "feed": Inner()}) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, first = self.inp(x), None
        for block in self.blocks:
            x, first = block["attend"](x, first)
            x = block["feed"](x)
        return self.out(x)


def test_the_stream_follows_the_skips_where_something_is_handed_past_it() -> None:
    structure = structure_of(SharedValues(), torch.randn(4, T, D))
    assert structure.num_residual == 8
    assert len(structure.stations) == 9  # the start and every sum


class Positioned(nn.Module):
    """Blocks, the last of which has a sum of its own on its branch, behind positions that are made there."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(D, D), nn.Linear(D, 3)
        self.positions = nn.Linear(D, D)
        self.blocks = nn.ModuleList(nn.ModuleList([mlp(), mlp(), mlp()]) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for begin, inner, end in self.blocks:
            y = begin(x)
            if end is self.blocks[-1][-1]:
                y = y + self.positions(torch.arange(float(T))[:, None] * torch.ones(D))
                y = y + inner(y)
            x = x + end(y)
        return self.out(x)


def test_positions_on_a_branch_start_no_stream() -> None:
    structure = structure_of(Positioned(), torch.randn(4, T, D))
    assert [station.kind for station in structure.stations].count("start") == 1
    assert len(structure.stations) == 4


def center(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5)


@pytest.mark.parametrize("norm", [center, lambda x: x / x.norm(dim=-1, keepdim=True)], ids=["centred", "length"])
def test_a_norm_by_hand_before_the_branch(norm: Callable[[torch.Tensor], torch.Tensor]) -> None:
    structure = structure_of(Net(lambda m, x: x + m.f(norm(x) * m.scale)), torch.randn(4, T, D))
    assert [site.placement for site in structure.sites] == ["pre"]


def test_a_norm_without_statistics() -> None:
    alpha = nn.Parameter(torch.tensor(0.5))
    structure = structure_of(Net(lambda m, x: x + m.f(m.scale * torch.tanh(alpha * x) + m.scale)), torch.randn(4, T, D))
    assert [site.placement for site in structure.sites] == ["pre"]


def test_a_search_that_gave_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradscope.probe.structure.residual._LEAST_BUDGET", 0)
    monkeypatch.setattr("gradscope.probe.structure.residual._BUDGET_PER_NODE", 0)
    monkeypatch.setattr("gradscope.probe.structure.residual.LONGEST_ONCE_SPENT", 2)
    structure = structure_of(Net(additive_u_net), torch.randn(4, T, D))
    assert any("longer than" in what for what, _ in structure.confessions)


def test_a_tensor_fed_to_a_thousand_blocks() -> None:
    class Fed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inp, self.step, self.out = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = state = self.inp(x)
            for _ in range(1100):
                state = torch.tanh(self.step(state) + x)
            return self.out(state)

    assert structure_of(Fed(), torch.randn(2, D)).num_residual <= 1
