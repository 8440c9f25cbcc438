"""`inspect` and `check` on models: the whole way from a file to the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradscope.record import Recording
from tests.cli.running import run

Capture = pytest.CaptureFixture[str]

NET = '''
import torch
from torch import nn

print("hello from the model's file")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        print("hello from forward")
        return x + torch.tanh(self.fc(x))


def model(depth=3):
    return nn.Sequential(*[Block() for _ in range(depth)], nn.Linear(8, 2))


def batch():
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(1)),)


def loss(output, batch):
    return output.square().mean()
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("gradscope.toml").write_text("")
    Path("net.py").write_text(NET)
    return tmp_path


def write(name: str, text: str) -> None:
    Path(name).write_text(textwrap.dedent(text))


def test_the_report_of_a_file(capsys: Capture) -> None:
    done = run(capsys, "inspect", "net.py", "--steps", "2")
    assert done.code == 0
    assert "Will train." in done.out
    assert "batch() in net.py" in done.out
    assert "3 residual additions" in done.out
    assert "hello" not in done.out, "what the model prints is not part of the result"
    assert "hello from forward" in done.err


def test_seeds_give_an_interval_over_initialisations(capsys: Capture) -> None:
    done = run(capsys, "inspect", "net.py", "-a", "depth=5", "--output-format", "json", "--steps", "2", "--seeds", "3")
    metrics = json.loads(done.out)["metrics"]
    assert metrics["num_seeds"] == 3
    assert metrics["decades_low"] < metrics["decades_over_seeds"] < metrics["decades_high"]
    assert "over 3 seeds" in run(capsys, "inspect", "net.py", "--steps", "1", "--seeds", "3").out


def test_json_is_alone_on_stdout_and_equals_plain_pytorch(capsys: Capture) -> None:
    import torch

    done = run(capsys, "inspect", "net.py", "--output-format", "json", "--steps", "1", "--seed", "3")
    view = json.loads(done.out)
    scope: dict[str, object] = {}
    exec(compile(NET, "net.py", "exec"), scope)
    torch.manual_seed(3)
    model = scope["model"]()  # type: ignore[operator]
    torch.manual_seed(3)
    batch = scope["batch"]()  # type: ignore[operator]
    value = scope["loss"](model(*batch), batch)  # type: ignore[operator]
    value.backward()
    assert view["steps"][0]["loss"] == pytest.approx(value.item(), rel=1e-6)
    norms = {row["name"]: row["grad_norm"] for row in view["parameters"]}
    expected = {name: parameter.grad.norm().item() for name, parameter in model.named_parameters()}
    assert norms == pytest.approx(expected, rel=1e-5)
    assert [site["module"] for site in view["residual_sites"]] == ["0", "1", "2"]


def test_arguments_reach_the_factory_and_files_are_written(capsys: Capture) -> None:
    done = run(
        capsys, "inspect", "net.py", "-a", "depth=5", "--steps", "1", "-o", "run.json.gz", "--html", "page.html",
        "--output-format", "concise", "--output-file", "text.txt",
    )  # fmt: skip
    assert (done.code, done.out) == (0, "")
    recording = Recording.load("run.json.gz")
    assert recording.provenance.arguments == {"depth": 5}
    assert sum(recording.tables["sites"]["counted"]) == 5
    assert "<html" in Path("page.html").read_text()
    assert "will-train" in Path("text.txt").read_text()
    assert run(capsys, "report", "page.html", "--output-format", "concise").out.startswith("page.html: will-train")


def test_the_line_of_an_error_can_be_pasted_with_settings_inside_of_settings(capsys: Capture) -> None:
    write("configured.py", """
        from torch import nn

        class Net(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.blocks = nn.ModuleList(nn.Linear(cfg.width, cfg.width) for _ in range(cfg.body.num_blocks))

            def forward(self, x):
                for block in self.blocks:
                    x = x + block(x)
                return x
        """)  # fmt: skip
    refused = run(capsys, "inspect", "configured.py")
    line = refused.err.partition("try: gradscope ")[2].split()
    assert (refused.code, line[2:]) == (2, ["-a", "body.num_blocks=4", "-a", "width=64"])
    done = run(capsys, *line, "--steps", "1")
    assert (done.code, "4 residual additions" in done.out) == (0, True)


def test_what_weights_were_loaded_is_told_and_kept(capsys: Capture) -> None:
    """And what else is to be known of how the target was loaded: this factory seeds itself."""
    Path("seeded.py").write_text(NET.replace("    return nn.Seq", "    torch.manual_seed(3)\n    return nn.Seq"))
    same = nn.Sequential(*(nn.ModuleDict({"fc": nn.Linear(8, 8)}) for _ in range(3)), nn.Linear(8, 2))
    torch.save(same.state_dict(), "a.pt")
    done = run(capsys, "inspect", "seeded.py", "--weights", "a.pt", "--steps", "1", "-o", "run.json")
    assert "Weights: 8 tensors from a.pt." in done.out
    assert "seeds itself" in done.out
    assert [note.split()[0] for note in Recording.load("run.json").provenance.notes] == ["Weights:", "model()"]


def test_watched_steps(capsys: Capture) -> None:
    run(capsys, "inspect", "net.py", "--watch", "0,2", "-o", "run.json")
    assert Recording.load("run.json").watched_steps == [0, 2]
    done = run(capsys, "inspect", "net.py", "--watch", "0,9", "--steps", "4")
    assert done.code == 2
    assert "step 9 is to be watched, but only 4 steps are taken" in done.err


def test_list_targets(capsys: Capture) -> None:
    done = run(capsys, "inspect", "net.py", "--list-targets")
    assert done.code == 0
    assert "net.py:model" in done.out
    assert "hello" not in done.out


NN = "import torch; from torch import nn\n"
FOUR = "def model(): return nn.Linear(4, 4)\n"
BATCH = "def batch(): return torch.ones(2, 4)\n"


@pytest.mark.parametrize("command", ["inspect", "check"])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def model(: pass", "broken.py:2"),
        ("import not_a_library_at_all", "not_a_library_at_all"),
        ("raise SystemExit(1)", "broken.py"),
        ("raise SystemExit(0)", "broken.py"),
        ("import sys; sys.exit('bye')", "broken.py"),
        ("raise KeyError('x')", "KeyError"),
        ("x = 1", "broken.py"),
        (f"{NN}class A(nn.Linear):\n    def __init__(self, size): super().__init__(size, size)", "size"),
        (f"{NN}def model(): raise ValueError('no weights')", "no weights"),
        (f"{NN}{FOUR}def batch(): return torch.ones(2, 3)", "shape"),
        (f"{NN}{FOUR}{BATCH}def loss(output, batch): return output.detach().sum()", "cut by detach at broken.py:5"),
        (f"{NN}{FOUR}{BATCH}def loss(output, batch): return output", "one number"),
    ],
)
def test_a_model_that_cannot_be_watched_is_exit_2_with_one_line(
    capsys: Capture, command: str, body: str, told: str
) -> None:
    Path("broken.py").write_text("\n" + body + "\n")
    done = run(capsys, command, "broken.py")
    assert done.code == 2, done.out
    assert done.out == ""
    assert told in done.err
    assert done.err.strip().count("\n") == 0
    assert "Traceback" not in done.err


def test_declared_targets_are_checked_together(capsys: Capture) -> None:
    Path("gradscope.toml").write_text(
        'steps = 1\n[targets.small]\ntarget = "net.py"\narguments = { depth = 2 }\n[targets.gone]\ntarget = "gone.py"\n'
    )
    done = run(capsys, "check", "--output-format", "concise")
    assert done.code == 2
    assert "small: will-train, no findings" in done.out
    assert "gone: " in done.err
    assert run(capsys, "check", "small", "--output-format", "concise").code == 0


def test_several_seeds_are_measured_and_agree(capsys: Capture) -> None:
    done = run(capsys, "check", "net.py", "--steps", "1", "--seeds", "2", "--output-format", "concise")
    assert done.code == 0
    refused = run(capsys, "check", "net.py", "--seeds", "2", "--seed", "none")
    assert refused.code == 2


def test_the_gate_measures_the_same_every_time_and_leaves_torchs_flags_alone(capsys: Capture) -> None:
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    command = ("check", "net.py", "--steps", "2", "--output-format", "json")
    assert len({run(capsys, *command).out for _ in range(3)}) == 1
    assert torch.are_deterministic_algorithms_enabled() == before


SLOW = """
    import time
    import torch
    from torch import nn

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.count = nn.Linear(4, 4), 0

        def forward(self, x):
            self.count += 1
            if self.count > {after}:
                print("waiting", flush=True)
                time.sleep(60)
            return self.fc(x)

    def model():
        return Slow()

    def batch():
        return torch.randn(2, 4)

    def loss(output, batch):
        return output.square().mean()
"""


@pytest.mark.parametrize("after", [0, 4])
def test_ctrl_c_is_130_and_keeps_what_was_measured(after: int) -> None:
    write("slow.py", SLOW.format(after=after))
    command = [sys.executable, "-m", "gradscope", "inspect", "slow.py", "--no-jacobian", "-o", "run.json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    started["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a background job ignores it
    with subprocess.Popen(command, **started) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting" in line:
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    recording = Recording.load("run.json")
    assert recording.provenance.partial
    assert "ended early" in out
