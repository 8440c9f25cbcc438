"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODELS = '''
import torch
from torch import nn


def healthy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def broken():
    """A layer that no gradient reaches, because its output is detached."""

    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.last(self.first(x).detach())

    return Cut()


def batch():
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


def loss(output, batch):
    return output.square().mean()
'''

TESTS = '''
import pytest
from models import batch, broken, healthy, loss


def test_healthy(gradscope):
    outcome = gradscope.assert_gradient_flow(healthy(), batch(), loss, num_steps=1)
    assert outcome.diagnosis.verdict == "will-train"


def test_broken(gradscope):
    gradscope.assert_gradient_flow(broken(), batch(), loss=loss, num_steps=1)


def test_selected_away(gradscope):
    gradscope.assert_gradient_flow(broken(), batch(), loss=loss, select=["GS3"], num_steps=1)


@pytest.mark.gradscope(ignore="GS106", num_steps=1)
class TestMarked:
    def test_ignored(self, gradscope):
        gradscope.assert_gradient_flow(broken(), batch(), loss=loss)

    @pytest.mark.gradscope(ignore=[], select="GS1")
    def test_the_nearest_marker_wins(self, gradscope):
        gradscope.assert_gradient_flow(broken(), batch(), loss=loss)


def test_unknown_code(gradscope):
    gradscope.assert_gradient_flow(healthy(), batch(), loss, select=["GS9"])


@pytest.mark.gradscope("GS1")
def test_wrong_marker(gradscope):
    pass
'''


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    plugin = ["-p", "gradscope.integrations.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "--strict-markers", "-W", "error", *plugin, *options]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)  # noqa: PLW1510


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (folder / "models.py").write_text(MODELS)
    (folder / "test_flow.py").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def done(suite: Path) -> subprocess.CompletedProcess[str]:
    return run_pytest(suite, "-rA")


@pytest.mark.parametrize("name", ["test_healthy", "test_selected_away", "TestMarked::test_ignored"])
def test_what_flows_or_does_not_count_passes(done: subprocess.CompletedProcess[str], name: str) -> None:
    assert f"PASSED test_flow.py::{name}" in done.stdout, done.stdout[-3000:]


@pytest.mark.parametrize("name", ["test_broken", "TestMarked::test_the_nearest_marker_wins"])
def test_what_does_not_flow_fails_with_the_report(done: subprocess.CompletedProcess[str], name: str) -> None:
    assert f"FAILED test_flow.py::{name}" in done.stdout
    assert "E       AssertionError: gradient flow: GS106" in done.stdout
    assert "E       Findings" in done.stdout
    assert "inspection = inspect(" not in done.stdout, "the plugin's own frames are hidden"


def test_an_unknown_code_is_told(done: subprocess.CompletedProcess[str]) -> None:
    assert "no rule has the code or prefix 'GS9'" in done.stdout


def test_a_marker_without_keywords_is_told(done: subprocess.CompletedProcess[str]) -> None:
    assert "pytest.mark.gradscope takes keywords only" in done.stdout


def test_the_marker_and_the_fixture_are_listed_and_load_no_torch(suite: Path) -> None:
    listed = run_pytest(suite, "--markers")
    assert "gradscope(select=..., ignore=..., fail_on=..., **settings)" in listed.stdout
    code = "import sys, gradscope.integrations.pytest_plugin; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_works_under_xdist(suite: Path) -> None:
    done = run_pytest(suite, "-p", "xdist.plugin", "-n", "2", "-k", "healthy or broken")
    assert "1 failed, 1 passed" in done.stdout
