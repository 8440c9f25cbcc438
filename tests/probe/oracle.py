"""An independent answer: the same step taken bare, with gradients by `torch.autograd.grad` at every module's output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from gradscope.probe.session import Session
from gradscope.probe.watching.tensors import tensors_in

Step = Callable[[nn.Module], torch.Tensor]
"""Runs a forward and returns the loss; its random numbers come from torch's global generator."""


def plain_norm(tensor: torch.Tensor) -> float:
    tensor = tensor.detach()
    if tensor.is_nested:
        tensor = tensor.values()
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double().norm().item()


def activation_norms(model: nn.Module, step: Step) -> dict[tuple[str, int], float | None]:
    """Gradient norm of the main output of each call: {(module, call): norm}."""
    names = {id(module): name for name, module in model.named_modules()}
    counts: dict[str, int] = {}
    places: list[tuple[tuple[str, int], Any]] = []

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        name = names.get(id(module))
        if name is None:
            return
        counts[name] = counts.get(name, -1) + 1
        found = [t for t in tensors_in(output) if t.is_floating_point() or t.is_complex()]
        if found and found[0].requires_grad:
            places.append(((name, counts[name]), get_gradient_edge(found[0])))

    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        torch.manual_seed(0)
        loss = step(model)
    finally:
        handle.remove()
    grads = torch.autograd.grad(loss, [edge for _, edge in places], allow_unused=True)
    return {key: None if g is None else plain_norm(g) for (key, _), g in zip(places, grads, strict=True)}


def bare_step(model: nn.Module, step: Step) -> tuple[torch.Tensor, dict[str, torch.Tensor | None]]:
    torch.manual_seed(0)
    loss = step(model)
    loss.backward()
    return loss.detach().clone(), grads_of(model)


def grads_of(model: nn.Module) -> dict[str, torch.Tensor | None]:
    return {n: None if p.grad is None else p.grad.detach().clone() for n, p in model.named_parameters()}


def watched_step(model: nn.Module, step: Step, session: Session | None = None) -> tuple[torch.Tensor, Any, Session]:
    session = session or Session(model, "default", Path.cwd())
    torch.manual_seed(0)
    with session.step(0) as watch:
        with watch.forward():
            loss = step(model)
        loss.backward()
    session.record(0, watch, None, None)
    return loss.detach().clone(), grads_of(model), session


def call_norms(session: Session) -> dict[tuple[str, int], float | None]:
    calls, stats = session.tables.columns["calls"], session.tables.columns["call_stats"]
    return {
        (calls["module"][row], calls["call"][row]): norm
        for row, norm in zip(stats["call"], stats["grad_norm"], strict=True)
    }


def parameter_norms(session: Session) -> dict[str, float | None]:
    names, stats = session.tables.columns["parameters"]["name"], session.tables.columns["parameter_stats"]
    return {names[row]: norm for row, norm in zip(stats["parameter"], stats["grad_norm"], strict=True)}


def check(make: Callable[[], nn.Module], step: Step, *, activations: bool = True, rel: float = 1e-5) -> Session:
    """Assert that watching changes nothing and finds what plain autograd finds; return what was recorded."""
    import pytest

    bare, watched, third = (_seeded(make) for _ in range(3))
    loss, grads = bare_step(bare, step)
    own_loss, own_grads, session = watched_step(watched, step)
    assert torch.equal(loss, own_loss)
    assert grads.keys() == own_grads.keys()
    norms = parameter_norms(session)
    for name, grad in grads.items():
        own = own_grads[name]
        assert (grad is None) == (own is None), name
        if grad is not None:
            assert torch.equal(*(g.to_dense() if g.is_sparse else g for g in (grad, own))), name
            assert norms[name] == pytest.approx(plain_norm(grad), rel=rel), name
        else:
            assert norms[name] is None, name
    if activations:
        found = call_norms(session)
        for key, norm in activation_norms(third, step).items():
            assert found[key] == (None if norm is None else pytest.approx(norm, rel=rel)), key
    assert nn.Module.__call__.__name__ == "_wrapped_call_impl"
    assert torch.autograd._engine_run_backward.__module__ == "torch.autograd.graph"
    return session


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()
