"""Judge targets and saved runs one after the other; one that cannot be judged does not hide the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradscope.cli.complaint import complain
from gradscope.cli.determinism import deterministic
from gradscope.cli.gate_settings import GateSettings
from gradscope.cli.measuring import measured
from gradscope.cli.reading import is_recording, read_recording
from gradscope.cli.request import Request
from gradscope.cli.results import note
from gradscope.errors import ConfigError, GradscopeError
from gradscope.gate.margins import margin
from gradscope.gate.outcome import Outcome, judge
from gradscope.gate.regression import regressions
from gradscope.gate.seeds import agreed
from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis
from gradscope.rules.verdict import diagnose

TIE_BREAKERS = 2
"""More seeds that are measured close to a limit: with the first they make the smallest odd number above one."""


@dataclass(frozen=True)
class Judged:
    """What came of all targets.

    Attributes:
        outcomes: Those that could be judged.
        num_failed: How many could not; their errors have been told.
        interrupted: Whether Ctrl-C ended it; the last outcome is then partial.
    """

    outcomes: tuple[Outcome, ...]
    num_failed: int
    interrupted: bool = False


def judge_all(requests: Sequence[Request], settings: GateSettings) -> Judged:
    """Judge every target; with a single one its error goes up as it is."""
    outcomes: list[Outcome] = []
    num_failed = 0
    for request in requests:
        try:
            outcomes.append(_judge(request, settings, alone=len(requests) == 1))
            if outcomes[-1].recording.provenance.partial and not is_recording(request.target):
                return Judged(tuple(outcomes), num_failed, interrupted=True)
        except GradscopeError as error:
            if len(requests) == 1:
                raise
            error.what = f"{request.name}: {error.what}"
            complain(error)
            num_failed += 1
    return Judged(tuple(outcomes), num_failed)


def _judge(request: Request, settings: GateSettings, *, alone: bool) -> Outcome:
    recordings = _recordings(request, settings.seeds or 1)
    recordings += _tie_breakers(request, recordings[0], settings)
    diagnosis = agreed([diagnose(recording, settings.thresholds) for recording in recordings])
    diagnosis = _compared(recordings, diagnosis, settings, alone=alone)
    partial = next((recording for recording in recordings if recording.provenance.partial), recordings[0])
    return judge(
        request.name,
        partial,
        diagnosis,
        selection=settings.selection,
        fail_on=settings.fail_on,
        baseline=settings.baseline,
    )


def _recordings(request: Request, num_seeds: int) -> list[Recording]:
    if is_recording(request.target):
        return [read_recording(Path(request.target))]
    if num_seeds > 1 and request.seed is None:
        raise ConfigError("--seeds needs a seed to count from.", rule="Leave out --seed none.")
    return _measured(request, range(num_seeds))


def _measured(request: Request, offsets: Iterable[int]) -> list[Recording]:
    seed = request.seed
    requests = [request] if seed is None else [_seeded(request, seed + offset) for offset in offsets]
    recordings: list[Recording] = []
    with deterministic():
        for one in requests:
            recordings.append(measured(one))
            if recordings[-1].provenance.partial:  # Ctrl-C means all of it
                break
    return recordings


def _seeded(request: Request, seed: int) -> Request:
    return replace(request, settings={**request.settings, "seed": seed})


def _tie_breakers(request: Request, first: Recording, settings: GateSettings) -> list[Recording]:
    """Measure more seeds where the first lies close to a limit, so that the result does not hang on one draw."""
    close = margin(first, diagnose(first, settings.thresholds), settings.thresholds).codes
    close = tuple(code for code in close if settings.selection.keeps_code(code))
    if not close or first.provenance.partial:
        return []
    told = f"{request.name}: close to a limit ({', '.join(close)})"
    if is_recording(request.target) or settings.seeds is not None or request.seed is None:
        note(told)
        return []
    note(f"{told}, so {TIE_BREAKERS} more seeds are measured and most of them decide")
    return _measured(request, range(1, 1 + TIE_BREAKERS))


def _compared(
    recordings: Sequence[Recording], diagnosis: Diagnosis, settings: GateSettings, *, alone: bool
) -> Diagnosis:
    """Add what got worse since the saved run of the same target."""
    target = recordings[0].provenance.target
    same = [(name, saved) for name, saved in settings.against if saved.provenance.target == target]
    if not same and alone:
        same = list(settings.against)  # one target, one saved run: the user says they belong together
    if settings.against and not same:
        names = ", ".join(name for name, _ in settings.against)
        raise ConfigError(f"no saved run of {target} among {names}.", hint=f"gradscope inspect {target} -o main.json")
    worse = [
        finding
        for name, saved in same
        for finding in regressions(saved, recordings[0], name, settings.comparison, recordings[1:])
    ]
    order = {"error": 0, "warning": 1, "info": 2}
    findings = sorted([*worse, *diagnosis.findings], key=lambda finding: order[finding.severity])
    return replace(diagnosis, findings=tuple(findings))
