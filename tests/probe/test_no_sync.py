"""Inside a step nothing looks at a number that lies on a device: what CUDA demands, checked without CUDA.

`Rows(host_branches=False)` takes the path of devices whose numbers arrive later. A dispatch mode then refuses every
operation that brings a number to the host or whose result's shape depends on numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.probe import session as session_module
from gradscope.probe.session import Session
from gradscope.probe.watching.rows import Rows

B, T, D, VOCAB = 2, 6, 16, 20
SYNCHRONISING = frozenset({
    "_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_dim",
    "unique_consecutive", "bincount", "histc", "repeat_interleave.Tensor", "_to_copy.cpu", "allclose",
})  # fmt: skip
"""Operations after which CUDA waits: they return a host number, or a shape that only the numbers tell."""


class NoHost(TorchDispatchMode):
    """Refuse what would wait for the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        overload = f"{name}.{func._overloadname}"
        if name in SYNCHRONISING or overload in SYNCHRONISING or _indexes_with_a_mask(name, args):
            raise AssertionError(f"{overload} inside the step")
        return func(*args, **(kwargs or {}))


def _indexes_with_a_mask(name, args):
    if name not in ("index", "index_put", "index_put_") or len(args) < 2:
        return False
    return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.conv, self.norm = nn.Conv1d(D, D, 3, padding=1), nn.BatchNorm1d(D)
        self.head = nn.Linear(D, VOCAB)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        x = x + F.relu(self.norm(self.conv(x)))
        return self.head(torch.tanh(x).transpose(1, 2))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(VOCAB, D), nn.LSTM(D, D, 2), nn.Linear(D, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def transformer(**kwargs):
    layer = nn.TransformerEncoderLayer(D, 4, 2 * D, 0.0, batch_first=True, **kwargs)
    return nn.Sequential(nn.Embedding(VOCAB, D), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                         nn.Linear(D, VOCAB))  # fmt: skip


MODELS = {
    "post-norm": transformer, "pre-norm": lambda: transformer(norm_first=True), "convolutional": Convolutional,
    "recurrent": Recurrent,
}  # fmt: skip


@pytest.mark.parametrize("level", ["params", "default", "deep"])
@pytest.mark.parametrize("name", MODELS)
def test_no_number_is_looked_at_inside_the_step(monkeypatch, name, level):
    monkeypatch.setattr(session_module, "Rows", lambda: Rows(host_branches=False))
    torch.manual_seed(0)
    model, ids = MODELS[name](), torch.randint(0, VOCAB, (B, T))
    session = Session(model, level, Path.cwd())
    for number in range(2):  # the first finds the structure, the second uses it again
        model.zero_grad()
        with NoHost(), session.step(number) as watch:
            with watch.forward():
                loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
        session.record(number, watch, None, None)
    assert session._signals is None or not session._signals.failures
    norms = session.tables.columns["parameter_stats"]["grad_norm"]
    expected = [float(p.grad.double().norm()) for p in model.parameters()]
    assert norms == pytest.approx(expected * 2, rel=1e-5)


def test_what_the_test_refuses_is_what_waits():
    with pytest.raises(AssertionError, match="inside the step"), NoHost():
        torch.ones(1).item()
    with pytest.raises(AssertionError, match="inside the step"), NoHost():
        bool(torch.ones(1) > 0)
    with pytest.raises(AssertionError, match="inside the step"), NoHost():
        torch.ones(3)[torch.ones(3) > 0]
    with pytest.raises(AssertionError, match="inside the step"), NoHost():
        torch.ones(3).nonzero()


def test_numbers_of_the_device_path_are_those_of_the_host_path():
    torch.manual_seed(0)
    model, ids = MODELS["pre-norm"](), torch.randint(0, VOCAB, (B, T))
    found = []
    for host_branches in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session_module, "Rows", lambda host=host_branches: Rows(host_branches=host))
            session = Session(model, "default", Path.cwd())
            model.zero_grad()
            with session.step(0) as watch:
                with watch.forward():
                    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
                loss.backward()
            session.record(0, watch, None, None)
        found.append(session.tables.columns["site_stats"])
    for column, values in found[0].items():
        assert values == pytest.approx(found[1][column], rel=1e-5, abs=1e-9), column
