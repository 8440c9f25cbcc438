"""Sums over tensors that were put next to each other, in all the ways there are to write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.structure.watching import explicit_flows, structure_of, watched

D = 6
F = Callable[[torch.Tensor], torch.Tensor]
Form = Callable[["Block", torch.Tensor], torch.Tensor]


class Block(nn.Module):
    def __init__(self, form: Form) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Linear(D, 2 * D), nn.Tanh(), nn.Linear(2 * D, D))
        self.gate = nn.Linear(D, 2)
        self.w = nn.Parameter(torch.tensor([1.0, 0.5]))
        self.register_buffer("fixed", torch.tensor([[0.5, 2.0]]))
        self.form = form

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.form(self, x)


def chunks(m: Block, x: torch.Tensor) -> torch.Tensor:
    one, other = torch.cat([x, m.f(x)], -1).chunk(2, -1)
    return one + other


def scaled_split(m: Block, x: torch.Tensor) -> torch.Tensor:
    one, other = torch.cat([m.f(x), x]).split([len(x), len(x)])
    return 0.5 * one + other


def slices(m: Block, x: torch.Tensor) -> torch.Tensor:
    joined = torch.cat([x, m.f(x)], 1)
    return joined[:, :D] + joined[:, D:]


def indexed(m: Block, x: torch.Tensor) -> torch.Tensor:
    stack = torch.stack([x, m.f(x)], 1)
    return stack[:, 0] + stack[:, 1]


def unbound(m: Block, x: torch.Tensor) -> torch.Tensor:
    one, other = torch.stack([x, m.f(x)]).unbind()
    return torch.add(other, one)


def view_and_sum(m: Block, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, m.f(x)], -1).view(len(x), 2, D).sum(1)


def einsum(m: Block, x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("k,kbd->bd", m.w, torch.stack([x, m.f(x)]))


def einsum_behind(m: Block, x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bdk,k->bd", torch.stack([x, m.f(x)], -1), m.w)


def tensordot(m: Block, x: torch.Tensor) -> torch.Tensor:
    return torch.tensordot(m.w, torch.stack([x, m.f(x)]), dims=1)


def times_vector(m: Block, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, m.f(x)], -1) @ m.w


def fixed_matrix(m: Block, x: torch.Tensor) -> torch.Tensor:
    return (m.fixed @ torch.stack([x, m.f(x)], 1)).squeeze(1)


def weighed_by_data(m: Block, x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bk,bkd->bd", m.gate(x).softmax(-1), torch.stack([x, m.f(x)], 1))


def weighed_sum(m: Block, x: torch.Tensor) -> torch.Tensor:
    return (m.gate(x).softmax(-1)[..., None] * torch.stack([x, m.f(x)], 1)).sum(1)


FORMS: dict[Form, str] = {
    chunks: "identity", scaled_split: "scaled", slices: "identity", indexed: "identity", unbound: "identity",
    view_and_sum: "identity", einsum: "scaled", einsum_behind: "scaled", tensordot: "scaled", times_vector: "scaled",
    fixed_matrix: "scaled", weighed_by_data: "gated", weighed_sum: "gated",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_forms(form: Form) -> None:
    model = nn.Sequential(nn.Linear(D, D), Block(form), Block(form)).double()
    seen = watched(model, torch.randn(3, D, dtype=torch.float64), retain=True)
    assert [site.kind for site in seen.counted] == [FORMS[form]] * 2
    assert [site.name for site in seen.counted] == ["1 + f", "2 + f"]
    assert not [site.name for site in seen.structure.sites if site.kind == "concat"]
    for site, flow, truth in zip(
        seen.structure.sites, seen.flows, explicit_flows(seen.structure, seen.loss), strict=True
    ):
        assert truth is not None
        assert [seen.number(handle) for handle in (flow.grad, flow.skip, flow.branch)] == pytest.approx(truth[:3])
        assert site.line is not None


@pytest.mark.parametrize("form", [einsum, times_vector, weighed_by_data, fixed_matrix], ids=lambda form: form.__name__)
def test_what_each_of_a_stack_brings_to_a_product(form: Form) -> None:
    """Skip and branch as they are added: the product of a stack with zeros in the other's place."""
    model = nn.Sequential(nn.Linear(D, D), Block(form))
    x = torch.randn(3, D)
    seen = watched(model, x)
    block, h = model[1], model[0](x)
    with torch.no_grad():
        weights = {einsum: block.w, times_vector: block.w, fixed_matrix: block.fixed[0]}.get(form)
        pair = block.gate(h).softmax(-1).T[..., None] if weights is None else weights
        truth = [(pair[0] * h).norm(), (pair[1] * block.f(h)).norm(), block(h).norm()]
    handles = seen.counted[0].forward_handles()
    assert [seen.number(handle) for handle in handles] == pytest.approx([float(one) for one in truth])


def mixture(m: Block, x: torch.Tensor) -> torch.Tensor:
    return (torch.stack([x, m.f(x)], -1) @ torch.eye(2) * m.w).flatten(1)[:, ::2]


def halves_that_go_different_ways(m: Block, x: torch.Tensor) -> torch.Tensor:
    one, other = torch.cat([x, m.f(x)], -1).chunk(2, -1)
    return torch.relu(one) * other


def two_experts(m: Block, x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bk,kbd->bd", m.gate(x).softmax(-1), torch.stack([m.f(x), torch.tanh(m.f(x))]))


def features_as_many_as_tensors(m: Block, x: torch.Tensor) -> torch.Tensor:
    """A layer over the other axis of a stack: as many features as tensors, and no sum of these."""
    pairs = torch.stack([x, m.f(x)])[:, :, :2]
    return (pairs @ m.w).T.repeat(1, D // 2)


@pytest.mark.parametrize("form", [mixture, halves_that_go_different_ways, two_experts, features_as_many_as_tensors])
def test_stacks_that_are_no_sum(form: Form) -> None:
    assert structure_of(nn.Sequential(nn.Linear(D, D), Block(form)), torch.randn(3, D)).num_residual == 0


def test_raw_input_in_a_stack() -> None:
    model = nn.Sequential(Block(indexed), Block(view_and_sum))
    assert structure_of(model, torch.randn(3, D)).num_residual == 2


def test_stack_that_is_used_elsewhere_gives_no_number_of_the_skip_alone() -> None:
    def also_used(m: Block, x: torch.Tensor) -> torch.Tensor:
        stack = torch.stack([x, m.f(x)])
        return stack.sum(0) * stack.abs().mean()

    seen = watched(nn.Sequential(nn.Linear(D, D), Block(also_used)), torch.randn(3, D))
    assert len(seen.counted) == 1
    assert seen.flows[0].skip is None
    assert seen.flows[0].branch is None


def test_sums_of_lists_are_confessed() -> None:
    def lists(m: Block, x: torch.Tensor) -> torch.Tensor:
        return torch._foreach_add([x], [m.f(x)])[0]

    structure = structure_of(nn.Sequential(nn.Linear(D, D), Block(lists)), torch.randn(3, D))
    assert any("torch._foreach_add" in what for what, _ in structure.confessions)
    plain = structure_of(nn.Sequential(nn.Linear(D, D), Block(indexed)), torch.randn(3, D))
    assert plain.confessions == []


AVERAGES: dict[str, Callable[[nn.Parameter, list[torch.Tensor]], torch.Tensor]] = {
    "einsum": lambda w, states: torch.einsum("l,lbd->bd", w.softmax(0), torch.stack(states)),
    "weighed stack": lambda w, states: (w[:, None, None] * torch.stack(states)).sum(0),
    "mean": lambda w, states: torch.stack(states).mean(0),
    "one by one": lambda w, states: sum(one * state for one, state in zip(w, states, strict=True)),
}


@pytest.mark.parametrize("average", AVERAGES)
def test_average_over_depth_is_no_addition(average: str) -> None:
    """What the blocks of one stream have left, weighed (Peters 2018, ELMo; DenseFormer): no work is added there."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.w = nn.Linear(D, D), nn.Parameter(torch.ones(4))
            self.f = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            states = [self.stem(x)]
            for f in self.f:
                states.append(states[-1] + f(states[-1]))
            return AVERAGES[average](self.w, states)

    assert [site.name for site in structure_of(Net(), torch.randn(3, D)).sites] == ["+ f.0", "+ f.1", "+ f.2"]
