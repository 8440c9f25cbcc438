"""Start-up: nothing heavy is loaded before it is needed, and every way to end has its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from gradscope.cli.app import unwrapped
from gradscope.cli.commands import COMMANDS, CommandEntry
from gradscope.cli.direct import direct
from gradscope.errors import GradscopeError
from tests.cli.running import run
from tests.report.samples import hostile, sick

HEAVY = ("torch", "numpy", "pandas", "plotly", "networkx", "jinja2")


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.mark.parametrize(
    "command",
    ["--help", "inspect --help", "check --help", "rules", "explain GS101", "variants", "--version", "report RUN",
     "check RUN --output-format sarif", "check RUN --output-format github", "report RUN --output-format json"],
)  # fmt: skip
def test_commands_that_do_not_measure_load_nothing_heavy(command: str, tmp_path: Path) -> None:
    run_file = tmp_path / "run.json"
    sick()[0].save(run_file)
    code = f"""
import sys
from gradscope.__main__ import main
main({command.replace("RUN", str(run_file)).split()!r})
heavy = [name for name in {HEAVY!r} if name in sys.modules]
sys.exit(f"loaded {{heavy}}" if heavy else 0)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_package_itself_loads_nothing_heavy() -> None:
    done = python(f"import sys, gradscope; sys.exit(bool({set(HEAVY)!r} & set(sys.modules)))")
    assert done.returncode == 0, done.stderr


def with_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `gradscope rules` raise."""

    def emit(text: str) -> None:
        raise error

    monkeypatch.setattr("gradscope.cli.rules.emit", emit)


UNEXPECTED = "try: the same command with --debug shows the traceback"
MISTAKE = GradscopeError("no x.py.", rule="A target is a file.", hint="gradscope inspect y.py", file="a.py", line=3)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (MISTAKE, 2, "error: a.py:3: no x.py. A target is a file. try: gradscope inspect y.py"),
        (RuntimeError("two\nlines \x1b[31m"), 2, f"error: unexpected RuntimeError: two lines \\x1b[31m. {UNEXPECTED}"),
        (SystemExit(0), 2, "error: the model's code called sys.exit(0). It must return a model."),
        (SystemExit(1), 2, "error: the model's code called sys.exit(1). It must return a model."),
        (KeyboardInterrupt(), 130, "error: interrupted; nothing had been measured yet."),
        (MemoryError(), 2, f"error: unexpected MemoryError. {UNEXPECTED}"),
        (RecursionError("deep"), 2, f"error: unexpected RecursionError: deep. {UNEXPECTED}"),
        (EOFError(), 2, f"error: unexpected EOFError. {UNEXPECTED}"),
        (GeneratorExit(), 2, f"error: unexpected GeneratorExit. {UNEXPECTED}"),
        (BrokenPipeError(32, "Broken pipe"), 0, ""),
    ],
)
def test_every_ending_has_one_line_and_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, told: str
) -> None:
    monkeypatch.delenv("GRADSCOPE_DEBUG", raising=False)
    with_command(monkeypatch, error)
    done = run(capsys, "rules")
    assert (done.code, done.out, done.err) == (code, "", f"{told}\n" if told else "")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GRADSCOPE_DEBUG", "")
    with_command(monkeypatch, RuntimeError("boom"))
    done = run(capsys, "rules", "--debug")
    assert done.code == 2
    assert "Traceback" in done.err
    assert "raise error" in done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["frobnicate"], "No such command 'frobnicate'. try: gradscope --help"),
        (["inspect"], "Missing argument 'TARGET'. try: gradscope inspect --help"),
        (["rules", "--jsno"], "gradscope rules --help"),
        (["inspect", "x.py", "--steps", "0"], "gradscope inspect --help"),
        (["inspect", "x.py", "--steps", "two"], "gradscope inspect --help"),
    ],
)
def test_wrong_usage_is_exit_2_with_the_next_command(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    done = run(capsys, *arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert told in done.err


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    run_file = tmp_path / "run.json"
    sick(60)[0].save(run_file)
    for command in (["report", str(run_file), "--all"], ["check", "--help"]):
        shell = subprocess.run(
            ["bash", "-c", '"$0" -m gradscope "$@" | head -n 1; exit "${PIPESTATUS[0]}"', sys.executable, *command],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (shell.returncode, shell.stderr) == (0, "")


def test_an_installation_that_cannot_start_is_never_exit_1(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('broken')\n")
    start = "from gradscope.__main__ import main; sys.exit(main(['check']))"
    done = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {start}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: gradscope cannot start")


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys)
    assert done.code == 0
    for entry in COMMANDS:
        assert entry.name in done.out


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_has_help_with_examples(capsys: pytest.CaptureFixture[str], entry: CommandEntry) -> None:
    module = import_module(f"gradscope.cli.{entry.name}")
    assert unwrapped(module.HELP).startswith(entry.summary), "the summary is the help's first sentence"
    done = run(capsys, entry.name, "--help")
    assert done.code == 0
    assert "Examples:" in done.out
    for example in module.EXAMPLES:
        words = example.split()
        assert words[0] == "gradscope"
        assert words[1] in {known.name for known in COMMANDS}


def test_the_help_page_loads_no_command() -> None:
    code = """
import sys
from gradscope.__main__ import main
main(["--help"])
sys.exit(str([name for name in sys.modules if name in ("gradscope.rules", "gradscope.cli.check")] or "") or 0)
"""
    assert python(code).returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_of_stdout_will_do(tmp_path: Path, encoding: str) -> None:
    run_file = tmp_path / "run.json"
    hostile()[0].save(run_file)
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for name in ("full", "concise", "markdown"):
        command = [sys.executable, "-m", "gradscope", "report", str(run_file), "--output-format", name]
        done = subprocess.run(command, capture_output=True, env=environment, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode(encoding)


@pytest.mark.parametrize("command", ["explain GS101", "explain GS999", "report RUN", "report nowhere.json"])
def test_what_needs_no_parser_says_what_the_parsed_command_does(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file = tmp_path / "run.json"
    sick()[0].save(run_file)
    words = command.replace("RUN", str(run_file)).split()
    assert direct(words) is not None
    parsed = [words[0], "--", *words[1:]]
    assert direct(parsed) is None
    assert run(capsys, *words) == run(capsys, *parsed)


@pytest.mark.parametrize("command", ["explain", "explain --help", "report -h", "rules", "inspect m.py", "report a b"])
def test_everything_else_is_parsed(command: str) -> None:
    assert direct(command.split()) is None


@pytest.mark.parametrize("command", ["explain GS101", "report RUN"])
def test_what_needs_no_parser_loads_none(command: str, tmp_path: Path) -> None:
    run_file = tmp_path / "run.json"
    sick()[0].save(run_file)
    words = command.replace("RUN", str(run_file)).split()
    code = f"import sys; from gradscope.__main__ import main; main({words!r}); sys.exit('pydantic' in sys.modules)"
    done = python(code)
    assert done.returncode == 0, done.stderr
