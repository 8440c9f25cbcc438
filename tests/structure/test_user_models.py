"""Models as people write them: audio, graphs, flows, state spaces, functions; with their counts by reading."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.structure.test_small_networks import D, Net, T, mlp
from tests.structure.watching import structure_of

Step = Callable[[Net, torch.Tensor], torch.Tensor]
HALF = D // 2


def conformer(m: Net, x: torch.Tensor) -> torch.Tensor:
    x = x + 0.5 * m.f(m.n(x))
    x = x + m.attention(*(m.n(x),) * 3, need_weights=False)[0]
    x = x + m.c[1](F.silu(m.bn[0](m.c[0](m.n(x).mT)))).mT
    return m.n(x + 0.5 * m.g(m.n(x)))


def learned_gate_of_both(m: Net, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(m.scale)
    return gate * x + (1 - gate) * m.f(x)


def tokens_that_are_skipped_at_random(m: Net, x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.rand(x.shape[0], T, 1) < 0.7, x + m.f(m.n(x)), x)


def clone_that_is_added_to(m: Net, x: torch.Tensor) -> torch.Tensor:
    return x.clone().add_(m.f(m.n(x)), alpha=0.5)


def negated_twice(m: Net, x: torch.Tensor) -> torch.Tensor:
    return -(-x - m.f(m.n(x)))


def sum_of_slices_put_together(m: Net, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[None], m.f(x)[None]]).sum(0)


def fields_of_a_dataclass(m: Net, x: torch.Tensor) -> torch.Tensor:
    @dataclasses.dataclass
    class State:
        hidden: torch.Tensor

    state = State(x)
    return dataclasses.replace(state, hidden=state.hidden + m.f(m.n(state.hidden))).hidden


def weights_made_by_a_layer(m: Net, x: torch.Tensor) -> torch.Tensor:
    made = F.pad(m.l[0](x.mean(1)), (0, D * D - D)).view(-1, D, D)
    return x + torch.tanh(torch.bmm(m.n(x), made))


def memory_read_by_product_and_sum(m: Net, x: torch.Tensor) -> torch.Tensor:
    memory = torch.ones(x.shape[0], 1, 5, D)
    weights = torch.softmax((memory * x[:, :, None]).sum(-1), -1)
    return m.l[0](x) + (weights[..., None] * memory).sum(2)


def noise_scaled_by_a_layer(m: Net, x: torch.Tensor) -> torch.Tensor:
    return x + F.softplus(m.l[0](x)) * torch.randn_like(x)


def windows_that_are_shifted(m: Net, x: torch.Tensor) -> torch.Tensor:
    windows = torch.roll(m.n(x), -1, 1).view(-1, 2, D)
    seen = m.attention(windows, windows, windows)[0].reshape(x.shape)
    return x + torch.roll(seen, 1, 1)


def state_space_by_convolution(m: Net, x: torch.Tensor) -> torch.Tensor:
    """The D of an S4 layer is no skip: the kernel and D are one linear layer."""
    u = m.n(x).mT
    kernel = torch.exp(-torch.arange(float(T))) * m.scale[:, None]
    y = torch.fft.irfft(torch.fft.rfft(u, n=2 * T) * torch.fft.rfft(kernel, n=2 * T), n=2 * T)[..., :T]
    return x + m.l[0](F.gelu((y + u * m.scale[:, None]).mT))


def gated_recurrence(m: Net, x: torch.Tensor) -> torch.Tensor:
    h = m.n(x)
    keep, new = torch.sigmoid(m.l[0](h)), m.l[1](h)
    state, states = torch.zeros(x.shape[0], D), []
    for t in range(T):
        state = keep[:, t] * state + torch.sqrt(1 - keep[:, t] ** 2) * new[:, t]
        states.append(state)
    return x + m.l[2](torch.stack(states, 1) * F.gelu(h))


def time_mix(m: Net, x: torch.Tensor) -> torch.Tensor:
    """RWKV: what a token mixes with the one before it is its input, no stream."""
    before = F.pad(x, (0, 0, 1, -1))
    mixed = x * m.scale + before * (1 - m.scale)
    return x + torch.sigmoid(m.l[0](mixed)) * m.l[1](torch.relu(m.l[2](mixed)) ** 2)


STEPS: list[tuple[Step, int]] = [
    (conformer, 4), (learned_gate_of_both, 1),
    (tokens_that_are_skipped_at_random, 1), (clone_that_is_added_to, 1), (negated_twice, 1), (time_mix, 1),
    (sum_of_slices_put_together, 1), (fields_of_a_dataclass, 1), (weights_made_by_a_layer, 1), (gated_recurrence, 1),
    (noise_scaled_by_a_layer, 1),
    (memory_read_by_product_and_sum, 1), (windows_that_are_shifted, 1), (state_space_by_convolution, 1),
]  # fmt: skip


@pytest.mark.parametrize(("step", "count"), STEPS, ids=[step.__name__ for step, _ in STEPS])
def test_blocks(step: Step, count: int) -> None:
    def thrice(m: Net, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = step(m, x)
        return x

    assert structure_of(Net(thrice), torch.randn(2, T, D)).num_residual == 3 * count


def context_for_all_places(m: Net, x: torch.Tensor) -> torch.Tensor:
    """GCNet: one vector for the whole map is a bias."""
    for layer in (m.f, m.g, m.h):
        x = x + layer(m.n(x).mean(1, keepdim=True))
    return x


def polynomial(m: Net, x: torch.Tensor) -> torch.Tensor:
    value = m.l[0](x)
    for layer in m.l[1:4]:
        value = value * x + layer(x)
    return value


def powers(m: Net, x: torch.Tensor) -> torch.Tensor:
    value, power = m.l[0](x), x
    for layer in m.l[1:4]:
        power = power * x
        value = value + layer(power)
    return value


def factorisation_machine(m: Net, x: torch.Tensor) -> torch.Tensor:
    return m.l[0](x) + 0.5 * (m.l[1](x) ** 2 - m.l[2](x**2))


def chebyshev(m: Net, x: torch.Tensor) -> torch.Tensor:
    terms = [torch.ones_like(x), torch.tanh(x)]
    for _ in range(2):
        terms.append(2 * terms[1] * terms[-1] - terms[-2])
    return sum((layer(term) for layer, term in zip(m.l, terms, strict=False)), torch.zeros(()))


def propagation_with_restart(m: Net, x: torch.Tensor) -> torch.Tensor:
    adjacency, first = torch.softmax(torch.randn(T, T), -1), m.l[0](x)
    z = first
    for _ in range(4):
        z = 0.9 * adjacency @ z + 0.1 * first
    return z


def two_encoders_that_mix_by_a_gate(m: Net, x: torch.Tensor) -> torch.Tensor:
    u, v, h = torch.tanh(m.l[0](x)), torch.tanh(m.l[1](x)), m.l[2](x)
    for layer in m.l[3:]:
        gate = torch.tanh(layer(h))
        h = (1 - gate) * u + gate * v
    return h


def affine_coupling(m: Net, x: torch.Tensor) -> torch.Tensor:
    """RealNVP scales and shifts one half by what the other says, as a conditioning does."""
    for layer in m.l[:3]:
        a, b = x.chunk(2, -1)
        scale, shift = layer(F.pad(a, (0, HALF))).chunk(2, -1)
        x = torch.cat([b * torch.exp(scale) + shift, a], -1)
    return x


NONE: list[Step] = [
    polynomial, powers, factorisation_machine, chebyshev, propagation_with_restart, two_encoders_that_mix_by_a_gate,
    affine_coupling, context_for_all_places,
]  # fmt: skip


@pytest.mark.parametrize("step", NONE, ids=lambda step: step.__name__)
def test_networks_without_any(step: Step) -> None:
    assert structure_of(Net(step), torch.randn(2, T, D)).num_residual == 0


class Coupling(nn.Module):
    """NICE (Dinh 2015): one half is kept, work on it is added to the other half; then they change places."""

    def __init__(self) -> None:
        super().__init__()
        self.work = nn.Sequential(nn.Linear(HALF, D), nn.ReLU(), nn.Linear(D, HALF))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([b + self.work(a), a], -1)


def test_additive_couplings_are_additions_to_half_the_stream() -> None:
    model = nn.Sequential(nn.Linear(D, D), Coupling(), Coupling(), Coupling(), nn.Linear(D, 2))
    structure = structure_of(model, torch.randn(2, T, D))
    assert [site.name for site in structure.sites if site.counted] == [f"{i} + work" for i in (1, 2, 3)]


def test_one_conditioning_of_a_half_is_no_coupling() -> None:
    model = nn.Sequential(nn.Linear(D, D), Coupling(), nn.Linear(D, 2))
    assert structure_of(model, torch.randn(2, T, D)).num_residual == 0


def test_decoder_that_attends_at_each_step_has_none() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.cell = nn.GRU(D, D, batch_first=True), nn.GRUCell(2 * D, D)
            self.ask, self.key, self.score, self.out = (nn.Linear(D, n) for n in (D, D, 1, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            memory, state = self.rnn(x)
            state, outputs = state[0], []
            for t in range(T):
                weights = torch.softmax(self.score(torch.tanh(self.key(memory) + self.ask(state)[:, None])), 1)
                state = self.cell(torch.cat([x[:, t], (weights * memory).sum(1) / math.sqrt(D)], -1), state)
                outputs.append(self.out(state))
            return torch.stack(outputs, 1)

    assert structure_of(Decoder(), torch.randn(2, T, D)).num_residual == 0


@pytest.mark.parametrize("recurrent", [nn.LSTM, nn.GRU, nn.RNN])
def test_wrapper_around_a_recurrent_layer(recurrent: type[nn.Module]) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = recurrent(D, D, batch_first=True), nn.LayerNorm(D)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x + self.layer(x)[0])

    structure = structure_of(nn.Sequential(nn.Linear(D, D), Wrapped(), Wrapped(), mlp()), torch.randn(2, T, D))
    assert [(site.name, site.placement) for site in structure.sites] == [(f"{i} + layer", "post") for i in (1, 2)]


def test_functions_with_their_weights_in_a_dict() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            names = [f"{name}{i}" for i in range(2) for name in ("up", "down")]
            self.weights = nn.ParameterDict({name: nn.Parameter(torch.randn(D, D)) for name in [*names, "stem"]})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x @ self.weights["stem"]
            for i in range(2):
                normed = F.layer_norm(x, (D,))
                x = x + F.gelu(normed @ self.weights[f"up{i}"]) @ self.weights[f"down{i}"]
            return x

    structure = structure_of(Functional(), torch.randn(2, T, D))
    assert [site.name for site in structure.sites] == [f"+ weights.up{i} … weights.down{i}" for i in range(2)]
    assert [site.placement for site in structure.sites] == ["pre", "pre"]


class Levels(nn.Module):
    """A residual block around residual blocks, around layers (ESRGAN): all begin with one tensor."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.2 * self.inner(x)


def test_levels_of_residual_blocks() -> None:
    def level() -> nn.Module:
        return Levels(nn.Sequential(Levels(mlp()), Levels(mlp())))

    model = nn.Sequential(nn.Linear(D, D), Levels(nn.Sequential(level(), level(), nn.Linear(D, D))), nn.Linear(D, 2))
    assert structure_of(model, torch.randn(2, T, D)).num_residual == 7
