from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gradscope.probe.signals.jacobian import StreamEnd, anisotropy, kappa_from_energies, num_cotangents, sub_batch_size


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def matrix_with(singular_values: Tensor) -> Tensor:
    n = len(singular_values)
    u, v = (torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator(seed)))[0] for seed in (1, 2))
    return u @ torch.diag(singular_values) @ v


def spectrum(name: str, n: int = 64) -> Tensor:
    rank_six = torch.full((n,), 0.05, dtype=torch.float64)
    rank_six[:6] = 1
    return {
        "isometry": torch.ones(n, dtype=torch.float64),
        "linear": torch.linspace(0, 1, n, dtype=torch.float64),
        "exponential": torch.exp(torch.linspace(-3, 0, n, dtype=torch.float64)),
        "rank six": rank_six,
        "rank one": torch.eye(n, dtype=torch.float64)[0],
    }[name]


@pytest.mark.parametrize("name", ["isometry", "linear", "exponential", "rank six", "rank one"])
def test_kappa_is_n_over_the_participation_ratio(name: str) -> None:
    s = spectrum(name)
    expected = float(len(s) * (s**4).sum() / (s**2).sum() ** 2)
    x = torch.randn(64, len(s), dtype=torch.float64, requires_grad=True, generator=None)
    y = x @ matrix_with(s).T
    found = anisotropy(StreamEnd.of(x), StreamEnd.of(y), generator(), 32)
    assert found.num_samples == 64
    assert found.gain == pytest.approx(float((s**2).mean()), rel=0.05)
    # 64 samples x 32 cotangents: about 2048 draws; energies of a rank-one map are chi-squared and need the widest gate.
    assert found.kappa == pytest.approx(expected, rel=0.2 if expected > 20 else 0.1)


def test_known_energies_give_the_formula() -> None:
    q = torch.tensor([1.0, 2.0, 3.0])
    assert kappa_from_energies(q, 10, 10) == pytest.approx(1 + 12 / 2 * 1 / 4)


@pytest.mark.parametrize(("n_in", "n_out"), [(16, 64), (64, 16)])
def test_an_isometry_between_unequal_widths_has_kappa_one(n_in: int, n_out: int) -> None:
    layer = nn.Linear(n_in, n_out, dtype=torch.float64)
    nn.init.orthogonal_(layer.weight)
    x = torch.randn(64, n_in, dtype=torch.float64, requires_grad=True)
    found = anisotropy(StreamEnd.of(x), StreamEnd.of(layer(x)), generator(), 32)
    assert found.kappa == pytest.approx(1, abs=0.1)
    assert found.gain == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("depth", [1, 12])
def test_coupled_samples_are_measured_at_each_start(depth: int) -> None:
    """Against the exact map from all ends to one sample's start: N / PR of its squared singular values."""
    torch.manual_seed(0)
    batch, n = 8, 16
    layers = [layer for _ in range(depth) for layer in (nn.Linear(n, n), nn.BatchNorm1d(n), nn.ReLU())]
    model = nn.Sequential(*layers).double()
    x = torch.randn(batch, n, dtype=torch.float64, requires_grad=True)
    found = anisotropy(StreamEnd.of(x), StreamEnd.of(model(x)), generator(), 400)
    full = torch.autograd.functional.jacobian(model, x.detach()).reshape(batch * n, batch, n)
    expected = 0.0
    for sample in range(batch):
        s = torch.linalg.svdvals(full[:, sample])
        expected += float(n * (s**4).sum() / (s**2).sum() ** 2) / batch
    assert expected - 0.1 * expected < found.kappa < expected + 1 + 0.1 * expected


def test_a_folded_batch_is_one_sample() -> None:
    x = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    found = anisotropy(StreamEnd.of(x), StreamEnd.of((2 * x).reshape(8, 4)), generator())
    assert found.num_samples == 1
    assert found.kappa == pytest.approx(1)
    assert found.gain == pytest.approx(4)


def test_the_place_survives_a_later_change_in_place() -> None:
    x = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    h = x * 2
    start = StreamEnd.of(h)
    h += 3 * h.detach()
    h *= 5
    found = anisotropy(start, StreamEnd.of(h), generator())
    assert found.gain == pytest.approx(25)
    assert found.kappa == pytest.approx(1)


def test_nothing_arrives_or_too_much() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    h = x * 1.0
    dead = anisotropy(StreamEnd.of(h), StreamEnd.of(h * 0.0), generator())
    assert dead.kappa is None
    assert "no gradient" in dead.reason
    cut = anisotropy(StreamEnd.of(h), StreamEnd.of(x * 2), generator())
    assert cut.kappa is None
    huge = anisotropy(StreamEnd.of(h), StreamEnd.of(h * 1e38 * 1e38), generator())
    assert huge.kappa is None
    assert "overflow" in huge.reason


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_kappa_knows_no_scale(factor: float) -> None:
    x = torch.randn(8, 16, requires_grad=True)
    weight = torch.randn(16, 16)
    kappas = [anisotropy(StreamEnd.of(x), StreamEnd.of(x @ weight * f), generator()).kappa for f in (1.0, factor)]
    assert kappas[0] == pytest.approx(kappas[1], rel=1e-3)


def test_global_random_numbers_and_gradients_are_left_alone() -> None:
    layer = nn.Linear(8, 8)
    x = torch.randn(4, 8, requires_grad=True)
    state = torch.get_rng_state()
    anisotropy(StreamEnd.of(x), StreamEnd.of(layer(x)), generator())
    assert torch.equal(torch.get_rng_state(), state)
    assert layer.weight.grad is None
    assert x.grad is None


def test_cost_is_bounded() -> None:
    assert [sub_batch_size(b) for b in (1, 4, 8, 32, 1000)] == [1, 1, 2, 8, 8]
    for batch in range(1, 200):
        steps = num_cotangents(batch) / 3 * sub_batch_size(batch) / batch
        assert steps < 2.7 if batch == 1 else steps < 1.6


def test_sampling_error_is_what_it_says() -> None:
    x = torch.randn(4, 64, dtype=torch.float64, requires_grad=True)
    y = x @ matrix_with(spectrum("rank six")).T
    source = generator()
    found = [anisotropy(StreamEnd.of(x), StreamEnd.of(y), source, 16) for _ in range(60)]
    kappas = torch.tensor([one.kappa for one in found])
    # Energies on few directions are more like chi-squared than like a Gaussian, which widens the spread.
    assert float(kappas.std() / (kappas.mean() - 1)) == pytest.approx(found[0].relative_error, rel=0.8)


class ByHand(nn.Module):
    """A normalisation over the batch that no library wrote."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) / x.std(0)


@pytest.mark.parametrize(("layer", "couples"), [
    (nn.Linear(8, 8), False), (nn.LayerNorm(8), False), (nn.BatchNorm1d(8), True), (ByHand(), True),
    (nn.BatchNorm1d(8).eval(), False),
])  # fmt: skip
def test_whether_samples_depend_on_each_other_is_measured(layer: nn.Module, couples: bool) -> None:
    x = torch.randn(8, 8, requires_grad=True)
    found = anisotropy(StreamEnd.of(x), StreamEnd.of(layer(x)), generator())
    assert (found.coupling > 0.01) if couples else (found.coupling < 1e-12)


def test_a_stream_whose_rows_are_all_faint_at_its_start_has_no_kappa() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    found = anisotropy(StreamEnd.of(x, torch.full((4,), 0.1)), StreamEnd.of(3 * x), generator())
    assert found.kappa is None
    assert "next to nothing" in found.reason
