"""The terminal report: fits its columns, says what it must, and cannot be broken by a name."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.cells import cell_len

from gradscope.record import Recording
from gradscope.report.console import rendered
from gradscope.report.terminal import render
from gradscope.rules.finding import Diagnosis
from tests.report.samples import healthy, hostile, large, nothing_measured, sick

Pair = tuple[Recording, Diagnosis]
SAMPLES: dict[str, Callable[[], Pair]] = {
    "sick": sick,
    "healthy": healthy,
    "hostile": hostile,
    "nothing": nothing_measured,
    "large": large,
    "one block": lambda: healthy(1),
}


class Stream(io.StringIO):
    """A stream with the properties a test wants."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal, self._encoding = terminal, encoding

    def isatty(self) -> bool:
        return self._terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def drawn(pair: Pair, width: int = 80, *, stream: Stream | None = None, show_all: bool = False) -> str:
    recording, diagnosis = pair
    return rendered(lambda console: render(recording, diagnosis, console, show_all=show_all), stream, width)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("show_all", [False, True])
def test_no_line_is_wider_than_the_terminal(sample: str, width: int, show_all: bool) -> None:
    for line in drawn(SAMPLES[sample](), width, show_all=show_all).splitlines():
        assert cell_len(line) <= width, line


@pytest.mark.parametrize("sample", SAMPLES)
def test_nothing_that_a_terminal_obeys_gets_through(sample: str) -> None:
    text = drawn(SAMPLES[sample](), show_all=True)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


def test_the_report_says_what_was_inspected_and_how_it_was_found() -> None:
    text = drawn(sick(), 120)
    assert "batch() in model.py" in text
    assert "loss() in model.py" in text
    assert "12 blocks" in text
    assert "12 residual additions (pre-norm)" in text
    assert "steps 0, 3, 10" in text
    assert "synthetic" not in text


def test_how_the_target_was_loaded_is_told() -> None:
    recording, diagnosis = healthy()
    notes = ("Only the decoder of Whole, in miniature: the whole has no forward.", "Weights: 3 tensors from a.pt.")
    recording = replace(recording, provenance=replace(recording.provenance, notes=notes))
    lines = drawn((recording, diagnosis), 120).splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("  note ")] == list(notes)


def test_made_up_inputs_are_marked() -> None:
    assert "synthetic" in drawn(hostile(), 120)


def test_verdict_and_findings_are_told_with_code_culprit_evidence_advice_and_source() -> None:
    text = drawn(sick())
    parts = ("Will not train.", "GS101", "layers.0", "model.py:41", "decades -4.80", "Mend it.", "GS303", "layers.3.fc")
    for part in parts:
        assert part in text


def test_the_profile_has_a_longer_bar_where_the_gradient_is_larger() -> None:
    text = drawn(sick())
    lengths = [line.count("█") for line in text.splitlines() if re.match(r"  layers\.\d+ +\S+ +█", line)]
    assert len(lengths) == 12
    assert lengths == sorted(lengths)
    assert lengths[-1] > lengths[0] + 10


def test_a_healthy_profile_is_not_stretched_into_a_cliff() -> None:
    recording, diagnosis = healthy()
    recording.tables["stream_stats"]["grad_norm"][:] = [
        2 * norm * (1.2 if number % 2 else 1.0)
        for number, norm in enumerate(recording.tables["stream_stats"]["grad_norm"])
    ]
    text = drawn((recording, diagnosis))
    lengths = [line.count("█") for line in text.splitlines() if re.match(r"  layers\.\d+ +\S+ +█", line)]
    assert max(lengths) - min(lengths) <= 2


@pytest.mark.parametrize(
    ("norm", "words"), [(None, "no gradient seen"), (0.0, "exactly zero"), (float("nan"), "not finite")]
)
def test_missing_zero_and_nonfinite_gradients_are_three_different_words(norm: float | None, words: str) -> None:
    recording, diagnosis = healthy()
    recording.tables["stream_stats"]["grad_norm"][3] = norm
    assert words in drawn((recording, diagnosis))


def test_a_thousand_blocks_fit_a_screen_or_two_and_all_lists_them() -> None:
    short, long = drawn(large()), drawn(large(), show_all=True)
    assert len(short.splitlines()) < 90
    assert "more, gradient" in short
    for number in range(1000):
        assert re.search(rf"  layers\.{number} ", long)


def test_many_findings_of_one_code_are_counted_not_listed() -> None:
    recording, diagnosis = hostile()
    text = drawn((recording, diagnosis), 120)
    assert f"{len(diagnosis.findings) - 3} more of GS101" in text


def test_colour_only_in_a_terminal_and_never_against_the_users_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" in drawn(sick(), stream=Stream(terminal=True))
    assert "\x1b" not in drawn(sick(), stream=Stream(terminal=False))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in drawn(sick(), stream=Stream(terminal=False))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in drawn(sick(), stream=Stream(terminal=True))


def test_an_ascii_stream_gets_ascii_signs() -> None:
    text = drawn(sick(), stream=Stream(terminal=False, encoding="ascii"))
    assert text.isascii()
    assert "#####" in text


def test_what_was_not_measured_is_told() -> None:
    text = drawn(nothing_measured())
    assert "Not measured" in text
    assert "the run was stopped before the first backward" in text
    assert "ended early" in text


def test_next_commands_can_be_pasted_into_a_shell() -> None:
    assert "gradscope explain GS101" in drawn(sick())
    assert "'[b] [/0]" in drawn(hostile(), 400)


def test_no_command_is_offered_for_a_model_that_has_no_target() -> None:
    recording, diagnosis = healthy()
    at_hand = Recording(replace(recording.provenance, target="Net"), recording.tables)
    assert "Next" not in drawn((at_hand, diagnosis))
    own = Recording(replace(recording.provenance, target="train.py --lr 1", own_loop=True), recording.tables)
    assert "gradscope run --check train.py --lr 1" in drawn((own, diagnosis))
