"""`gradscope compare`: saved runs without torch, revisions in a worktree."""

from __future__ import annotations

import json
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
    stack(12, decades_per_block=-0.4).save("bad.json")


def test_two_runs_side_by_side(capsys: Capture) -> None:
    done = run(capsys, "compare", "good.json", "bad.json", "--html", "page.html")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("A  good.json")
    assert "Will not train" in lines[1]
    assert "GS101" in lines[1]
    assert "-4.80 worse" in done.out
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
    assert row["values"][1] == {"mean": pytest.approx(-4.8), "deviation": None}
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
