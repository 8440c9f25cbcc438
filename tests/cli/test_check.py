"""The gate on saved runs: exit codes, selection, baselines, comparisons, formats; all of it without torch."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from gradscope.cli.request import Request
from gradscope.record import Recording
from tests.cli.running import run
from tests.support.recordings import stack

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder that no configuration file reaches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    Path("gradscope.toml").write_text("")


@pytest.fixture
def good(tmp_path: Path) -> str:
    stack(12).save(tmp_path / "good.json")
    return "good.json"


@pytest.fixture
def bad(tmp_path: Path) -> str:
    stack(12, decades_per_block=-0.6).save(tmp_path / "bad.json.gz")
    return "bad.json.gz"


def test_exit_codes(capsys: Capture, good: str, bad: str) -> None:
    assert run(capsys, "check", good).code == 0
    done = run(capsys, "check", bad)
    assert done.code == 1
    assert "GS101" in done.out
    assert run(capsys, "check", good, bad).code == 1
    assert run(capsys, "check", bad, "--exit-zero").code == 0
    assert run(capsys, "check", bad, "--fail-on", "never").code == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--select", "GS2"], 0),
        (["--select", "GS1"], 1),
        (["--select", "GS2,GS101"], 1),
        (["--select", "GS2", "--extend-select", "GS101"], 1),
        (["--ignore", "GS1"], 0),
        (["--ignore", "GS1", "--select", "GS101"], 1),
    ],
)
def test_selection(capsys: Capture, bad: str, options: list[str], code: int) -> None:
    assert run(capsys, "check", bad, *options).code == code


def test_selection_and_ignores_from_the_configuration(capsys: Capture, bad: str) -> None:
    Path("gradscope.toml").write_text('ignore = ["GS1"]\n')
    assert run(capsys, "check", bad).code == 0
    assert run(capsys, "check", bad, "--ignore", "GS6").code == 1
    Path("gradscope.toml").write_text('[per-module-ignores]\n"*" = ["GS1"]\n')
    assert run(capsys, "check", bad).code == 0
    Path("gradscope.toml").write_text("[thresholds]\nGS101 = { decades = 9, warn_decades = 9 }\n")
    assert run(capsys, "check", bad, "--select", "GS101").code == 0
    levels = ("--set", "GS101.decades=3", "--set", "GS101.warn_decades=2")
    assert run(capsys, "check", bad, "--select", "GS101", *levels).code == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to check"),
        (["none.json"], "no such recording: none.json"),
        (["broken.json"], "not a readable recording"),
        (["good.json", "--select", "GS9"], "no rule has the code or prefix 'GS9'"),
        (["good.json", "--ignore", "E501"], "no rule has the code or prefix 'E501'"),
        (["good.json", "--baseline", "none.json"], "no such baseline"),
        (["good.json", "--baseline", "broken.json"], "cannot be read"),
        (["good.json", "--against", "none.json"], "no such recording"),
        (["good.json", "--fail-on", "eror"], "Did you mean 'error'"),
        (["good.json", "--output-format", "sarfi"], "Did you mean 'sarif'"),
        (["good.json", "--output-file", "no/such/folder.txt"], "there is no folder no/such"),
        (["good.json", "--set", "GS101.decade=3"], "GS101.decades"),
        (["good.json", "--set", "GS701.decade=3"], "Did you mean 'decades'"),
        (["good.json", "--config", "none.toml"], "no such configuration file"),
        (["good.json", "good.json", "-o", "both.json"], "one file for 2 targets"),
        (["good.json", "--also", "sarif"], "It is FORMAT=FILE"),
        (["good.json", "--also", "sarfi=x"], "Did you mean 'sarif'"),
    ],
)
def test_misuse_is_exit_2_with_one_clear_line(capsys: Capture, good: str, arguments: list[str], told: str) -> None:
    Path("broken.json").write_text('{"format": "grad')
    done = run(capsys, "check", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert told in done.err
    assert done.err.count("\n") == 1


def test_one_run_that_cannot_be_judged_does_not_hide_the_others_and_is_exit_2(capsys: Capture, bad: str) -> None:
    done = run(capsys, "check", bad, "none.json")
    assert done.code == 2
    assert "GS101" in done.out
    assert "none.json: no such recording" in done.err


def test_a_baseline_lets_known_findings_pass_and_reports_stale_ones(capsys: Capture, good: str, bad: str) -> None:
    assert run(capsys, "check", bad, "--write-baseline", "base.json").code == 0
    done = run(capsys, "check", bad, "--baseline", "base.json")
    assert done.code == 0
    assert "set aside by base.json" in done.err
    fixed = run(capsys, "check", good, "--baseline", "base.json")
    assert fixed.code == 0
    assert "stale entry in base.json: GS101" in fixed.err


def test_what_is_found_beside_the_baseline_still_fails(capsys: Capture, bad: str) -> None:
    run(capsys, "check", bad, "--write-baseline", "base.json")
    other = stack(12, decades_per_block=-0.4, name="other.{}")
    other.save("other.json")
    assert run(capsys, "check", "other.json", "--baseline", "base.json").code == 1


def test_a_worse_profile_than_the_saved_one_fails(capsys: Capture, good: str) -> None:
    worse = stack(12, decades_per_block=-0.12)
    worse.save("worse.json")
    assert run(capsys, "check", "worse.json").code == 0
    done = run(capsys, "check", "worse.json", "--against", good)
    assert done.code == 1
    assert "GS701" in done.out
    assert "lost 1.4 decades since good.json" in " ".join(done.out.split())
    assert run(capsys, "check", "worse.json", "--against", good, "--set", "GS701.fail_decades=2").code == 0
    assert run(capsys, "check", "worse.json", "--against", good, "--ignore", "GS701").code == 0
    assert run(capsys, "check", good, "--against", good).code == 0


def test_several_saved_runs_are_matched_by_target(capsys: Capture, good: str) -> None:
    for name in ("a", "b"):
        recording = stack(12)
        Recording(replace(recording.provenance, target=f"{name}.py"), recording.tables).save(f"{name}.json")
    assert run(capsys, "check", "a.json", "b.json", "--against", "a.json", "--against", "b.json").code == 0
    done = run(capsys, "check", "a.json", good, "--against", "a.json")
    assert done.code == 2
    assert "no saved run of model.py among a.json" in done.err


def test_a_partial_recording_is_never_clean(capsys: Capture, good: str) -> None:
    recording = Recording.load(good)
    Recording(replace(recording.provenance, partial=True), recording.tables).save("partial.json")
    done = run(capsys, "check", "partial.json")
    assert done.code == 2
    assert "does not mean clean" in done.err


def test_an_output_file_gets_the_result_and_stdout_nothing(capsys: Capture, bad: str) -> None:
    done = run(capsys, "check", bad, "--output-format", "sarif", "--output-file", "out.sarif")
    assert (done.code, done.out) == (1, "")
    assert json.loads(Path("out.sarif").read_text())["runs"][0]["results"][0]["ruleId"].startswith("GS")


def test_one_measurement_is_written_in_several_formats_and_per_target(capsys: Capture, good: str, bad: str) -> None:
    Path("runs").mkdir()
    done = run(
        capsys, "check", good, bad, "--also", "sarif=out.sarif", "--also", "junit=out.xml", "-o", "runs",
        "--output-format", "concise",
    )  # fmt: skip
    assert done.code == 1
    assert json.loads(Path("out.sarif").read_text())["version"] == "2.1.0"
    assert Path("out.xml").read_text().startswith("<?xml")
    assert sorted(file.name for file in Path("runs").iterdir()) == ["bad.json.gz.json", "good.json.json"]
    assert Recording.load("runs/good.json.json").watched_steps == [0, 3, 10]


def test_json_on_stdout_is_json_alone(capsys: Capture, bad: str) -> None:
    content = json.loads(run(capsys, "check", bad, "--output-format", "json").out)
    assert content["schema"] == 1
    assert {finding["code"] for finding in content["findings"]} >= {"GS101"}


def test_github_also_writes_the_job_summary(capsys: Capture, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    done = run(capsys, "check", bad, "--output-format", "github")
    assert done.out.startswith("::error ")
    assert Path("summary.md").read_text().startswith("before\n### gradscope: `bad.json.gz` ❌ will not train")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/such/folder/summary.md")
    assert run(capsys, "check", bad, "--output-format", "github").code == 1


def test_show_settings_prints_what_is_in_force_and_measures_nothing(capsys: Capture) -> None:
    declared = '[targets.tiny]\ntarget = "missing.py"\narguments = { n = 2 }\n'
    Path("gradscope.toml").write_text(f'select = ["GS1"]\n{declared}')
    done = run(capsys, "check", "--show-settings", "--fail-on", "warning", "-a", "layers=3")
    assert done.code == 0
    assert 'select = ["GS1"]' in done.out
    assert 'fail-on = "warning"' in done.out
    assert "[targets.tiny]" in done.out
    assert "arguments = { n = 2, layers = 3 }" in done.out


def test_ten_times_the_same(capsys: Capture, bad: str) -> None:
    results = {run(capsys, "check", bad, "--output-format", "json").out for _ in range(10)}
    assert len(results) == 1


def test_a_report_can_be_rendered_saved_and_read_again(capsys: Capture, bad: str) -> None:
    assert run(capsys, "report", bad, "-o", "again.json", "--output-format", "concise").code == 0
    first, second = (run(capsys, "report", name, "--output-format", "json").out for name in (bad, "again.json"))
    assert first == second


def test_rules_and_explain(capsys: Capture) -> None:
    listed = json.loads(run(capsys, "rules", "--json").out)
    plain = run(capsys, "rules").out
    for rule in listed:
        assert rule["code"] in plain
        explained = run(capsys, "explain", rule["code"].lower())
        assert explained.code == 0
        for section in rule["sections"]:
            assert section["heading"] in explained.out
        assert json.loads(run(capsys, "explain", rule["name"], "--json").out) == rule


@pytest.mark.parametrize(
    ("totals", "options", "code", "measured"),
    [
        ((-3.3, -3.6, -3.7), [], 1, 3),
        ((-3.7, -3.3, -3.2), [], 0, 3),
        ((-3.7, -3.3, -3.8), [], 1, 3),
        ((-1.0,), [], 0, 1),
        ((-9.0,), [], 1, 1),
        ((-3.7,), ["--seeds", "1"], 1, 1),
        ((-3.7,), ["--seed", "none"], 1, 1),
        ((-3.3,), ["--ignore", "GS101"], 0, 1),
    ],
)
def test_close_to_a_limit_more_seeds_decide(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    totals: tuple[float, ...],
    options: list[str],
    code: int,
    measured: int,
) -> None:
    seeds: list[int | None] = []

    def measure(request: Request) -> Recording:
        seeds.append(request.seed)
        return stack(12, decades_per_block=totals[len(seeds) - 1] / 12)

    monkeypatch.setattr("gradscope.cli.gating.measured", measure)
    monkeypatch.setattr("gradscope.cli.gating.deterministic", nullcontext)
    done = run(capsys, "check", "model.py", "--select", "GS101", *options)
    assert (done.code, len(seeds)) == (code, measured)
    assert ("2 more seeds are measured" in done.err) == (measured > 1)
    if measured > 1:
        assert seeds == [0, 1, 2]
