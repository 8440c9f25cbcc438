"""The sample repository: a good commit is green, a bad one red with code, module and line, in every format."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradscope.report.formats.registry import PLAIN_FORMATS

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Commit:
    """A commit of the sample repository, after the action's own script has run on it."""

    folder: Path
    code: int
    log: str
    summary: str
    outputs: str

    @property
    def reports(self) -> Path:
        return self.folder / "gradscope-report"


def shell(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a runner does: bash, failing on the first error, with `gradscope` on the path."""
    tools = folder.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name, module in (("gradscope", "gradscope"), ("pytest", "pytest")):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        tool.chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **environment}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)  # noqa: PLW1510


def action_script() -> str:
    """The `run:` block of the action's check step."""
    lines = (ROOT / "action.yml").read_text().split("- name: Check gradient flow")[1].split("run: |\n")[1].splitlines()
    block = []
    for line in lines:
        if line and not line.startswith("        "):
            break
        block.append(line[8:])
    return "\n".join(block)


def run_action(folder: Path) -> Commit:
    summary, outputs = folder.parent / f"{folder.name}.summary", folder.parent / f"{folder.name}.outputs"
    for file in (summary, outputs):
        file.write_text("")
    done = shell(
        action_script(), folder, TARGETS="", OPTIONS="", GITHUB_STEP_SUMMARY=str(summary), GITHUB_OUTPUT=str(outputs)
    )
    return Commit(folder, done.returncode, done.stdout + done.stderr, summary.read_text(), outputs.read_text())


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ci") / "good"
    shutil.copytree(ROOT / "examples" / "ci", folder)
    git = "git -c user.name=a -c user.email=a@example.org"
    done = shell(f"git init -q . && git add -A && {git} commit -qm good", folder)
    assert done.returncode == 0, done.stderr
    done = shell(
        f"git clone -q good bad && cd bad && git apply drop-the-skip.patch && {git} commit -qam bad", folder.parent
    )
    assert done.returncode == 0, done.stderr
    return folder.parent


@pytest.fixture(scope="module")
def good(repository: Path) -> Commit:
    return run_action(repository / "good")


@pytest.fixture(scope="module")
def bad(repository: Path) -> Commit:
    return run_action(repository / "bad")


def test_the_good_commit_is_green(good: Commit) -> None:
    assert good.code == 0, good.log
    assert "exit-code=0" in good.outputs
    assert "✅ will train" in good.summary
    assert "::error" not in good.log


def test_the_bad_commit_is_red_with_code_module_and_line(bad: Commit) -> None:
    assert bad.code == 1, bad.log
    assert "exit-code=1" in bad.outputs
    assert re.search(r"^::error file=encoder\.py,line=\d+,title=GS101 blocks\.\d+::", bad.log, re.MULTILINE)
    assert "GS101" in bad.summary
    line = int(re.search(r"line=(\d+)", bad.log)[1])  # type: ignore[index]
    assert "Block" in (bad.folder / "encoder.py").read_text().splitlines()[line - 1]


def test_the_reports_are_kept(bad: Commit) -> None:
    assert {file.name for file in bad.reports.iterdir()} == {
        "encoder.html", "encoder.json", "gradscope.sarif", "junit.xml",
    }  # fmt: skip
    results = json.loads((bad.reports / "gradscope.sarif").read_text())["runs"][0]["results"]
    assert results[0]["ruleId"] == "GS101"
    assert results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "encoder.py"
    assert ET.parse(bad.reports / "junit.xml").find("testsuite/testcase/failure") is not None


@pytest.mark.parametrize("name", ["full", *PLAIN_FORMATS])
def test_every_format_shows_the_fault(good: Commit, bad: Commit, name: str) -> None:
    red = shell(f"gradscope check gradscope-report/encoder.json --output-format {name}", bad.folder)
    green = shell(f"gradscope check gradscope-report/encoder.json --output-format {name}", good.folder)
    assert (red.returncode, green.returncode) == (1, 0), red.stderr + green.stderr
    for part in ("GS101", "blocks.", "encoder.py"):
        assert part in red.stdout
    assert "GS101" not in green.stdout


def test_the_bad_commit_is_a_regression_since_the_good_one(good: Commit, bad: Commit) -> None:
    main = good.reports / "encoder.json"
    command = f"gradscope check gradscope-report/encoder.json --against {main} --select GS7 --output-format concise"
    done = shell(command, bad.folder)
    assert done.returncode == 1
    assert re.search(r"GS701 error blocks\.\d+: .* lost 1\d\.\d decades since", done.stdout)


def test_the_sample_test_passes_and_fails_with_the_commits(good: Commit, bad: Commit) -> None:
    plugin = "-p gradscope.integrations.pytest_plugin"
    for commit, code in ((good, 0), (bad, 1)):
        done = shell(f"pytest -q {plugin}", commit.folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        assert done.returncode == code, done.stdout[-2000:]


def test_hook_and_pipeline_run_the_same_command() -> None:
    ci = ROOT / "examples" / "ci"
    for file in (ROOT / ".pre-commit-hooks.yaml", ci / ".pre-commit-config.yaml"):
        assert re.search(r"entry: gradscope check$", file.read_text(), re.MULTILINE)
        assert "stages: [pre-push]" in file.read_text()
    pipeline = (ci / ".gitlab-ci.yml").read_text()
    assert "--also gitlab=gradscope-report/code-quality.json" in pipeline
    assert "codequality: gradscope-report/code-quality.json" in pipeline


def test_no_file_of_the_sample_installs_gradscope_by_name_from_the_index() -> None:
    for file in [ROOT / "action.yml", *(ROOT / "examples" / "ci").rglob("*")]:
        if file.is_file() and file.suffix in (".yml", ".yaml", ".md", ".toml"):
            assert not re.search(r"pip install (-\S+ )*(torch-)?gradscope\b", file.read_text()), file
