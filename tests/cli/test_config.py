"""Settings files: strict, nearest key named, relative to themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradscope.cli.options import MeasuringOptions
from gradscope.cli.request import configuration, request_for
from gradscope.config import find_config, load_config
from gradscope.errors import ConfigError

FULL = """
[tool.gradscope]
select = ["GS1", "gs2"]
ignore = ["GS109"]
fail-on = "warning"
steps = 5
lr = 1
device = "cpu"
seed = "none"
watch = [0, 2]
jacobian = false

[tool.gradscope.per-module-ignores]
"encoder.*" = ["GS303"]

[tool.gradscope.thresholds]
"GS101.decades" = 4
GS102 = { decades = 5.5 }

[tool.gradscope.targets.small]
target = "models/net.py:build"
arguments = { layers = 4 }
steps = 2
loss = "models/net.py:loss"
"""


def write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_everything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(write(tmp_path, FULL))
    assert config.settings["select"] == ("GS1", "GS2")
    assert config.settings["seed"] == "none"
    assert config.per_module_ignores == {"encoder.*": ("GS303",)}
    assert config.thresholds == {"GS101.decades": 4.0, "GS102.decades": 5.5}
    assert config.targets["small"].target == "models/net.py:build"


def test_the_command_line_wins_over_the_target_over_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(write(tmp_path, FULL))
    request = request_for("small", MeasuringOptions(argument=["layers=9"], device="cuda"), config)
    assert request.arguments == {"layers": 9}
    assert request.settings["steps"] == 2
    assert request.settings["device"] == "cuda"
    assert request.settings["lr"] == 1
    assert request.seed is None
    assert request_for("other.py", MeasuringOptions(), config).settings["steps"] == 5


def test_paths_are_meant_from_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("")
    file = write(tmp_path, FULL)
    monkeypatch.chdir(tmp_path / "models")
    target = load_config(file).targets["small"]
    assert Path(target.target.removesuffix(":build")).resolve() == tmp_path / "models" / "net.py"
    assert target.settings["loss"].endswith(":loss")
    monkeypatch.chdir(tmp_path)
    assert load_config(file).targets["small"].target == "models/net.py:build"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selct = ['GS1']", "unknown key 'selct'. Did you mean 'select'"),
        ("fail_on = 'error'", "unknown key 'fail_on'. Did you mean 'fail-on'"),
        ("fail-on = 'eror'", "Did you mean 'error'"),
        ("steps = 'five'", "steps = 'five' must be a whole number"),
        ("steps = true", "must be a whole number"),
        ("select = 3", "must be a list of codes"),
        ("jacobian = 1", "must be true or false"),
        ("dtype = 'fp8'", "must be one of"),
        ("thresholds = { 'GS101.decades' = 'x' }", "must be a number"),
        ("per-module-ignores = ['x']", "must be a table"),
        ("[targets.a]\narguments = {}", "needs target"),
        ("[targets.a]\ntarget = 'm.py'\nselect = ['GS1']", "unknown key 'select' in [targets.a]"),
        ("[targets.a]\ntarget = 'm.py'\nstep = 3", "Did you mean 'steps'"),
        ("steps = ", "not valid TOML"),
    ],
)
def test_mistakes_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text, "gradscope.toml"))
    assert message in str(caught.value)
    assert "gradscope.toml" in str(caught.value)


def test_the_nearest_file_counts_and_other_projects_are_passed_over(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    outer = write(tmp_path, "[tool.gradscope]\nsteps = 3")
    write(tmp_path / "a", "[tool.black]\nline-length = 3")
    assert find_config(inner) == outer
    near = write(tmp_path / "a", "steps = 4", "gradscope.toml")
    assert find_config(inner) == near


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        configuration(MeasuringOptions(config=tmp_path / "none.toml"))
