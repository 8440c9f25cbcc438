"""Numbers of tensors of every kind, right from 1e-38 to 1e38, in one transfer."""

import math

import pytest
import torch

from gradscope.probe.watching.rows import Rows

SCALES = [1e-44, 1e-38, 1e-30, 1e-20, 1.0, 1e15, 1e25, 1e37]


@pytest.fixture(params=[True, False], ids=["host", "device"])
def rows(request):
    return Rows(host_branches=request.param)


def tensors(scale):
    generator = torch.Generator().manual_seed(0)
    for shape in [(), (5,), (7, 50_001), (64, 32, 33)]:
        x = (torch.randn(shape, dtype=torch.float64, generator=generator) * scale).float()
        yield x
        yield x.transpose(0, -1) if x.dim() else x
        yield x[..., ::2] if x.dim() else x
        yield x.expand(3, *x.shape)


@pytest.mark.parametrize("scale", SCALES)
def test_norm_is_right_at_every_scale_and_layout(rows, scale):
    expected = [(rows.norm(x), x.double().norm().item()) for x in tensors(scale)]
    numbers = rows.read()
    for handle, norm in expected:
        assert numbers[handle] == pytest.approx(norm, rel=2e-6, abs=0)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e15])
def test_dot_and_absmax(rows, scale):
    for x in tensors(scale):
        y = x.flip(0) if x.dim() else -x
        dot, largest = rows.dot(x, y), rows.absmax(x)
        numbers = rows.read()
        expected = (x.double() * y.double()).sum().item()
        size = x.double().norm().item() * y.double().norm().item()
        assert abs(numbers[dot] - expected) <= 1e-6 * size
        assert numbers[largest] == x.abs().max().item()


def test_large_tensors_do_not_drift(rows):
    x = torch.full((3_000_003,), 0.1)
    handle = rows.norm(x)
    assert rows.read()[handle] == pytest.approx(x.double().norm().item(), rel=1e-6)


def test_zero_nan_and_infinity_stay_what_they_are(rows):
    values = [torch.zeros(10), torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.inf]), torch.zeros(0)]
    handles = [rows.norm(x) for x in values]
    numbers = rows.read()
    zero, nan, inf, empty = (numbers[handle] for handle in handles)
    assert zero == 0.0
    assert math.isnan(nan)
    assert inf == math.inf
    assert empty == 0.0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_kind_of_tensor(rows):
    places = torch.tensor([[0, 0, 1]])
    sparse = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0, 4.0]), (3,), check_invariants=True)
    kinds = {
        "sparse with repeated places": (sparse, 5.0),
        "sparse rows": (torch.eye(3).to_sparse_csr(), math.sqrt(3)),
        "complex": (torch.tensor([3 + 4j, 0j]), 5.0),
        "conjugate": (torch.tensor([3 + 4j, 0j]).conj(), 5.0),
        "half beyond its range": (torch.full((70_000,), 300.0).half(), 300 * math.sqrt(70_000)),
        "bfloat16": (torch.full((4,), 2.0).bfloat16(), 4.0),
        "float8": (torch.ones(4).to(torch.float8_e4m3fn), 2.0),
        "quantised": (torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8), 2.0),
        "nested": (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), math.sqrt(5)),
        "jagged": (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), math.sqrt(5)),
    }
    handles = {name: rows.norm(tensor) for name, (tensor, _) in kinds.items()}
    numbers = rows.read()
    for name, (_, norm) in kinds.items():
        assert handles[name] is not None, (name, rows.unseen)
        assert numbers[handles[name]] == pytest.approx(norm, rel=1e-4), name
    assert not rows.unseen


def test_what_cannot_be_read_is_confessed(rows):
    assert rows.norm(torch.empty(3, device="meta")) is None
    assert rows.norm(torch.arange(3)) is None
    torch.func.vmap(lambda x: rows.norm(x) or x)(torch.ones(2, 3))
    assert {reason.split(" (")[0] for reason in rows.unseen} == {
        "tensors without values", "tensors of dtype int64", "values inside a functorch transform",
    }


def test_one_transfer_and_no_look_at_numbers_before_it(monkeypatch):
    rows = Rows(host_branches=False)
    with monkeypatch.context() as patch:
        for method in ("item", "tolist", "__bool__", "__float__", "cpu", "numpy"):
            patch.setattr(torch.Tensor, method, _forbidden)
        for x in tensors(1.0):
            rows.norm(x)
            rows.dot(x, x)
            rows.absmax(x)
        rows.norms([torch.ones(3), torch.zeros(2, 2)])
        transfers = []
        patch.setattr(torch.Tensor, "tolist", lambda self: transfers.append(self.shape) or [0.0] * self.numel())
        rows.read()
    assert len(transfers) == 1


def _forbidden(*_args):
    raise AssertionError("a number was looked at inside the step")


def test_numbers_do_not_enter_the_graph(rows):
    x = torch.ones(3, requires_grad=True)
    before = x._version
    handle = rows.norm(x * 2)
    assert not any(isinstance(v, torch.Tensor) and v.requires_grad for v in rows._values)
    assert rows.read()[handle] == pytest.approx(math.sqrt(12))
    assert x._version == before


def test_a_norm_is_taken_once_as_long_as_the_tensor_lives_unchanged(rows):
    x = torch.ones(5000)
    first = rows.norm(x)
    assert rows.norm(x) == first
    assert rows.norm(x.view(50, 100)) == first
    assert rows.norm(x[::2]) != first
    assert rows.norm(x[:100]) != first
    x.mul_(2)
    second = rows.norm(x)
    numbers = rows.read()
    assert numbers[first] == pytest.approx(5000**0.5)
    assert numbers[second] == pytest.approx(2 * 5000**0.5)


def test_memory_that_is_used_again_is_not_taken_for_the_same_tensor(rows):
    handles = []
    for i in range(1, 20):
        x = torch.full((5000,), float(i))
        handles.append((i, rows.norm(x)))
        del x
    numbers = rows.read()
    for i, handle in handles:
        assert numbers[handle] == pytest.approx(i * 5000**0.5, rel=1e-6)


def test_small_tensors_are_measured_together_as_they_are_one_by_one(rows):
    torch.manual_seed(0)
    many = [torch.randn(shape) * scale for shape in ((7,), (64, 48), (2, 3)) for scale in (1.0, 1e-25, 1e25, 0.0)]
    many += [torch.randn(5000), torch.ones(3, 4).t(), torch.full((4, 1024), 0.1), torch.full((4, 1024), 0.1)] * 3
    shown = {}

    def look(numbers, values):
        for place, i in enumerate(numbers):
            shown[i] = values[place] if len(numbers) > 1 else values

    handles = rows.norms(many, look)
    numbers = rows.read()
    for i, tensor in enumerate(many):
        expected = float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
        assert numbers[handles[i]] == pytest.approx(expected, rel=1e-6)
        assert torch.equal(shown[i], tensor)
