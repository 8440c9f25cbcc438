"""Every shipped example comes out as its own text says, through the same path as `gradscope inspect`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gradscope
from gradscope.probe.session import Session

EXPECTED: dict[str, tuple[str, str | None, str]] = {
    # file: (verdict, code of the leading error or None, where it is blamed)
    "pre_ln_gpt.py": ("will-train", None, ""),
    "resnet_cifar.py": ("will-train", None, ""),
    "vit_tiny.py": ("will-train", None, ""),
    "lstm_lm.py": ("will-train", None, ""),
    "unet.py": ("will-train", None, ""),
    "post_ln.py": ("will-not-train", "GS301", "encoder.layers"),
    "no_residual.py": ("will-not-train", "GS301", "layers"),
    "plain_resnet.py": ("will-not-train", "GS102", "blocks"),
    "sigmoid_mlp.py": ("will-not-train", "GS101", "0"),
    "residual_no_norm.py": ("will-not-train", "GS102", "blocks"),
    "rnn_forgets.py": ("will-not-train", "GS107", "cell"),
    "detached_encoder.py": ("at-risk", "GS106", "encoder"),
    "nan_padding.py": ("will-not-train", "GS104", "attention"),
    "lora_both_zero.py": ("will-not-train", "GS105", "0"),
}
ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
ON_PATH = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
SCRIPTS = {"train_charlm.py"}
CURES = {"plain_resnet.py": {"shortcut": True}, "lora_both_zero.py": {"zero_down": False}, "post_ln.py": {"layers": 4}}


def test_every_example_is_expected(examples: Path) -> None:
    assert {path.name for path in examples.glob("*.py")} == set(EXPECTED) | SCRIPTS


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str, examples: Path) -> None:
    verdict, code, where = EXPECTED[name]
    inspection = gradscope.inspect(str(examples / name))
    errors = [finding for finding in inspection.findings if finding.severity == "error"]
    assert inspection.verdict == verdict, inspection.diagnosis.reason
    if code is None:
        assert not errors
    else:
        blamed = [finding for finding in errors if finding.code == code]
        assert blamed, [finding.code for finding in errors]
        assert blamed[0].module.startswith(where)
        assert blamed[0].advice


@pytest.mark.parametrize("name", CURES)
def test_the_cure_an_example_names_works(name: str, examples: Path) -> None:
    inspection = gradscope.inspect(str(examples / name), arguments=CURES[name])
    assert inspection.verdict == "will-train", inspection.diagnosis.reason


@pytest.mark.parametrize("name", EXPECTED)
def test_watching_changes_no_bit(name: str, examples: Path) -> None:
    bare, watched = _one_step(examples / name, watch=False), _one_step(examples / name, watch=True)
    assert bare.keys() == watched.keys()
    differing = [key for key in bare if not torch.equal(bare[key].nan_to_num(7.0), watched[key].nan_to_num(7.0))]
    assert not differing


def _one_step(file: Path, *, watch: bool) -> dict[str, torch.Tensor]:
    subject = gradscope.load(str(file), seed=0)
    batch = next(iter(subject.batches))
    torch.manual_seed(0)
    if watch:
        with Session(subject.model, "default", file.parent).step(0) as step:
            with step.forward():
                loss = subject.loss(subject.call(batch), batch)
            loss.backward()
    else:
        loss = subject.loss(subject.call(batch), batch)
        loss.backward()
    grads = {name: p.grad.clone() for name, p in subject.model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach().clone(), "random": torch.rand(4), **grads, **dict(subject.model.named_buffers())}


@pytest.mark.parametrize("document", sorted(path.relative_to(ROOT).as_posix() for path in DOCUMENTS))
def test_python_in_the_documents_runs(document: str, tmp_path: Path) -> None:
    text = (ROOT / document).read_text()
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        script = tmp_path / f"block{number}.py"
        script.write_text(code)
        runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if "def test_" in code else []
        command = [sys.executable, *runner, str(script)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ON_PATH, check=False)
        assert run.returncode == 0, f"{document}, block {number}:\n{run.stdout}{run.stderr}"
