"""Targets of optional libraries, exported programs and hub directories."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.errors import MissingLibraryError, TargetError
from gradscope.target import load

LIBRARIES = {"timm": "timm:resnet18", "torchvision": "torchvision:resnet18", "transformers": "hf:bert"}


def step(subject) -> float:
    batch = next(iter(subject.batches))
    loss = subject.loss(subject.call(batch), batch)
    loss.backward()
    assert all(p.grad is not None for p in subject.model.parameters())
    return loss.item()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_library_is_named_with_its_install_line(library, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(MissingLibraryError) as caught:
        load(LIBRARIES[library])
    assert caught.value.hint == f"pip install {library}"
    assert library in caught.value.what


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_librarys_model_takes_a_step(library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    subject = load(LIBRARIES[library])
    assert step(subject) > 0
    assert subject.inputs_origin.synthetic


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x, scale=None):
        out = self.head(self.blocks(x) + x)
        return out if scale is None else out * scale


@pytest.fixture
def export(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def save(args, kwargs=None) -> nn.Module:
        torch.manual_seed(0)
        net = Net()
        torch.export.save(torch.export.export(net, args, kwargs), "net.pt2")
        return net

    return save


pytestmark = pytest.mark.filterwarnings("ignore")  # torch.export warns of its own doings


def test_an_exported_program_gets_its_modules_back(export):
    x = torch.randn(4, 8)
    net = export((x,))
    subject = load("net.pt2")
    assert {"blocks", "blocks.0", "head"} <= {name for name, _ in subject.model.named_modules()}
    (given,) = next(iter(subject.batches))
    torch.testing.assert_close(subject.call((given,)), net(given))
    assert subject.inputs_origin.text == "example inputs in net.pt2"
    assert step(subject) > 0


@pytest.mark.parametrize(
    ("args", "kwargs"), [((torch.ones(4, 8),), {"scale": torch.ones(1)}), ((), {"x": torch.ones(4, 8)})]
)
def test_an_exported_program_with_keywords(export, args, kwargs):
    export(args, kwargs)
    assert step(load("net.pt2")) > 0


def test_a_damaged_program(export):
    export((torch.randn(4, 8),))
    Path("net.pt2").write_bytes(Path("net.pt2").read_bytes()[:200])
    with pytest.raises(TargetError, match=r"net.pt2 is damaged"):
        load("net.pt2")
    with pytest.raises(TargetError, match=r"net.pt2"):
        load("gone.pt2")


class Evil:
    def __reduce__(self):
        return (Path.mkdir, (Path("pwned"),))


def test_a_program_whose_example_inputs_carry_code(export):
    export((torch.randn(4, 8),))
    with zipfile.ZipFile("net.pt2") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in parts if "sample_inputs" in n or "example_inputs" in n)
    torch.save(Evil(), "evil.pt")
    parts[name] = Path("evil.pt").read_bytes()
    with zipfile.ZipFile("net.pt2", "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    with pytest.raises(TargetError):
        load("net.pt2")
    assert not Path("pwned").exists()


HUB = """
dependencies = ["torch"]
def small(pretrained=True, width=4):
    assert not pretrained, "would download"
    return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))
"""


def test_a_hub_directory(write):
    write(HUB, "repo/hubconf.py")
    subject = load("hub:repo:small", arguments={"width": 6})
    assert subject.model[0].out_features == 6
    assert step(subject) > 0
    with pytest.raises(TargetError, match="small"):
        load("hub:repo:smal")
    with pytest.raises(TargetError) as caught:
        load("hub:repo")
    assert caught.value.hint == "gradscope inspect hub:repo:small"


def test_a_hub_repository_on_the_net_is_not_fetched():
    with pytest.raises(TargetError, match="Nothing is fetched"):
        load("hub:pytorch/vision:resnet18")
