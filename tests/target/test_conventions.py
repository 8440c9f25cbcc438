"""A file's model(), batch() and loss(), and the seeding rule."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gradscope.target import load
from gradscope.target.subject import Subject

PLAIN = """
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a, self.b = nn.Linear(3, width), nn.Linear(width, 2)
        self.drop = nn.Dropout(0.5)
    def forward(self, x, scale=1.0):
        return self.b(self.drop(torch.tanh(self.a(x)))) * scale
def model(width=4):
    return Net(width)
def batch():
    return (torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), 2.0)
def loss(output, batch):
    return output.pow(2).mean()
"""


def first_loss(subject: Subject) -> float:
    torch.manual_seed(0)
    batch = next(iter(subject.batches))
    return subject.loss(subject.call(batch), batch).item()


def test_step_zero_is_that_of_two_plain_lines(write):
    subject = load(write(PLAIN))
    namespace: dict[str, Any] = {}
    exec(Path("user_model.py").read_text(), namespace)
    torch.manual_seed(0)
    model = namespace["model"]()
    batch = namespace["batch"]()
    torch.manual_seed(0)
    expected = namespace["loss"](model(*batch), batch)
    assert first_loss(subject) == expected.item()


def test_arguments_reach_the_factory(write):
    subject = load(write(PLAIN), arguments={"width": 7})
    assert subject.model.a.out_features == 7
    assert subject.arguments == {"width": 7}


def test_origins_name_the_file(write):
    subject = load(write(PLAIN))
    assert subject.inputs_origin.text == "batch() in user_model.py"
    assert subject.loss_origin.text == "loss() in user_model.py"
    assert not subject.inputs_origin.synthetic
    assert not subject.loss_origin.synthetic


def test_rebuild_from_another_seed(write):
    subject = load(write(PLAIN))
    again, other = subject.rebuild(0), subject.rebuild(1)
    assert torch.equal(subject.model.a.weight, again.model.a.weight)
    assert not torch.equal(subject.model.a.weight, other.model.a.weight)
    assert first_loss(again) == first_loss(subject)


def test_a_factory_that_seeds_itself_is_said_to(write):
    subject = load(write(PLAIN.replace("    return Net(width)", "    torch.manual_seed(3)\n    return Net(width)")))
    assert any("seeds itself" in note for note in subject.notes)
    assert not load(write(PLAIN, "other.py")).notes


def test_seed_none_leaves_the_generator(write):
    torch.manual_seed(11)
    expected = torch.randn(3)
    torch.manual_seed(11)
    load(
        write("net = nn.ReLU()\ndef batch(): return torch.ones(2, requires_grad=True)\ndef loss(o, b): return o.sum()"),
        seed=None,
    )
    assert torch.equal(torch.randn(3), expected)


def test_mode_is_kept_unless_asked(write):
    file = write(PLAIN.replace("    return Net(width)", "    return Net(width).eval()"))
    assert not load(file).model.training
    assert load(file, mode="train").model.training
    assert not load(file, mode="eval").model.training


def test_dict_batches_are_keywords(write):
    subject = load(
        write(
            PLAIN.replace(
                "return (torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), 2.0)",
                "return {'scale': 2.0, 'x': torch.ones(5, 3)}",
            )
        )
    )
    batch = next(iter(subject.batches))
    subject.model.eval()
    torch.testing.assert_close(subject.call(batch), 2 * subject.model(torch.ones(5, 3)))


@pytest.mark.parametrize("result", ["out", "{'loss': out, 'more': x}", "Out(out)", "(x, out)"])
def test_the_models_own_loss(write, result):
    subject = load(
        write(f"""
        from collections import namedtuple
        Out = namedtuple("Out", "loss")
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 1)
            def forward(self, x):
                out = self.a(x).mean()
                return {result}
        model = Net()
        def batch():
            return torch.ones(4, 3)
    """)
    )
    assert first_loss(subject) == pytest.approx(subject.model.a(torch.ones(4, 3)).mean().item())
    assert not subject.loss_origin.synthetic


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch.compile's own
def test_every_reference_case_loads(shared):
    """The loss of the first step is the one that plain PyTorch measured."""
    truth = json.loads((shared / "cases" / "truth.json").read_text())
    files = sorted((shared / "cases").glob("[0-9]*.py"))
    assert files
    for file in files:
        assert first_loss(load(str(file))) == pytest.approx(_plain_loss(file), rel=1e-6, nan_ok=True), file.name
        assert file.stem in truth


def _plain_loss(file: Path) -> float:
    spec = importlib.util.spec_from_file_location("plain_" + file.stem, file)
    case = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = case
    spec.loader.exec_module(case)
    torch.manual_seed(0)
    model = case.model()
    batch = case.batch()
    torch.manual_seed(0)
    output = model(**batch) if isinstance(batch, dict) else model(*batch)
    if hasattr(case, "loss"):
        return case.loss(output, batch).item()
    return (output if isinstance(output, torch.Tensor) else output["loss"]).item()
