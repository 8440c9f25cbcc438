"""`gradscope compare`: saved runs without torch, revisions in a worktree."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.support.recordings import stack

Capture = pytest.CaptureFixture[str]

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))

    def forward(self, x):
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return x


def model():
    return Net()


def batch():
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(1)),)


def loss(output, batch):
    return output.square().mean()
"""


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gradscope.toml").write_text("")
    stack(12).save("good.json")
    stack(12, decades_per_block=-0.8).save("bad.json")


def test_two_runs_side_by_side(capsys: Capture) -> None:
    done = run(capsys, "compare", "good.json", "bad.json", "--html", "page.html")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("A  good.json")
    assert "Will not train" in lines[1]
    assert "GS101" in lines[1]
    assert "-9.60 worse" in done.out
    assert "<html" in Path("page.html").read_text()


def test_the_first_is_the_reference(capsys: Capture) -> None:
    assert "better" in run(capsys, "compare", "bad.json", "good.json").out
    same = run(capsys, "compare", "good.json", "good.json").out
    assert "better" not in same
    assert "worse" not in same


def test_json(capsys: Capture) -> None:
    content = json.loads(run(capsys, "compare", "good.json", "bad.json", "--output-format", "json").out)
    assert [entry["verdict"] for entry in content["runs"]] == ["will-train", "will-not-train"]
    row = next(row for row in content["differences"] if row["metric"] == "decades")
    assert row["judgements"] == ["", "worse"]
    assert row["values"][1] == {"mean": pytest.approx(-9.6), "deviation": None}
    assert content["profiles"]["by_name"] is True


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["good.json"], "nothing to compare with"),
        (["good.json", "none.json"], "no such recording"),
        (["good.json", "--rev", "main"], "is a saved run"),
        (["net.py", "--rev", "main"], "git rev-parse"),
        (["good.json", "bad.json", "--output-format", "sarif"], "not known"),
        (["net.py", "net.py", "--seeds", "2", "--seed", "none"], "needs a seed"),
    ],
)
def test_misuse_is_exit_2(capsys: Capture, arguments: list[str], told: str) -> None:
    done = run(capsys, "compare", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def git(*words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], check=True, capture_output=True
    )


def test_a_target_against_its_past(capsys: Capture) -> None:
    Path("net.py").write_text(NET)
    git("init", "-q", ".")
    git("add", "net.py")
    git("commit", "-qm", "with skips")
    Path("net.py").write_text(NET.replace("x = x + torch.relu(block(x))", "x = torch.relu(block(x))"))
    done = run(capsys, "compare", "net.py", "--rev", "HEAD", "--steps", "1", "--output-format", "json")
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert [entry["name"] for entry in content["runs"]] == ["net.py @ HEAD", "net.py"]
    assert [len(entry["residual_sites"]) for entry in content["runs"]] == [12, 0]
    worktrees = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(worktrees.splitlines()) == 1
    gone = run(capsys, "compare", "net.py", "--rev", "nowhere")
    assert gone.code == 2
    assert "no such revision" in gone.err


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose net.py, in a folder, has lost its skips since the commit."""
    root = tmp_path / "repository"
    (root / "models").mkdir(parents=True)
    net = root / "models" / "net.py"
    net.write_text(NET)
    subprocess.run(["git", "init", "-q", str(root)], check=True, capture_output=True)
    git("-C", str(root), "add", ".")
    git("-C", str(root), "commit", "-qm", "with skips")
    net.write_text(NET.replace("x = x + torch.relu(block(x))", "x = torch.relu(block(x))"))
    return root


@pytest.mark.parametrize("way", ["absolute, from elsewhere", "relative, from elsewhere", "dotted, on the path"])
def test_the_past_is_measured_however_the_target_is_written(
    capsys: Capture, repository: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    target = str(repository / "models" / "net.py")
    if way.startswith("relative"):
        target = "repository/models/net.py"
    elif way.startswith("dotted"):
        target = "models.net:model"
        (repository / "models" / "__init__.py").touch()
        monkeypatch.chdir(repository)
        monkeypatch.syspath_prepend(str(repository))
        monkeypatch.setenv("PYTHONPATH", str(repository), prepend=os.pathsep)
    done = run(capsys, "compare", target, "--rev", "HEAD", "--steps", "1", "--no-jacobian", "--output-format", "json")
    assert done.code == 0, done.err
    assert [len(entry["residual_sites"]) for entry in json.loads(done.out)["runs"]] == [12, 0]
    assert (repository / "models" / "net.py").read_text().count("x = torch.relu") == 1


def test_a_file_that_did_not_exist_then_is_said_not_to(
    capsys: Capture, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "models")
    Path("new.py").write_text(NET)
    done = run(capsys, "compare", "new.py", "--rev", "HEAD")
    assert done.code == 2
    assert "new.py does not exist at HEAD" in done.err


def test_the_page_draws_every_seed(capsys: Capture) -> None:
    command = ["compare", "builtin:mlp-relu", "builtin:mlp-relu-he", "-a", "layers=6", "--steps", "1", "--no-jacobian"]
    done = run(capsys, *command, "--seeds", "3", "--html", "page.html")
    assert done.code == 0, done.err
    assert "median of 3 seeds" in Path("page.html").read_text()
