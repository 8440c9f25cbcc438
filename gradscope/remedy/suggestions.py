"""Try remedies on a loaded model, one after the other, and rank them by what they measurably do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gradscope.errors import GradscopeError
from gradscope.probe import MeasurementInterrupted, measure
from gradscope.probe.settings import ProbeSettings
from gradscope.record import Recording, json_number
from gradscope.remedy.catalog import REMEDIES, Remedy
from gradscope.remedy.places import Places, find_places
from gradscope.rules.finding import Diagnosis, Verdict
from gradscope.rules.verdict import diagnose
from gradscope.target.subject import Subject

Progress = Callable[[str, int, int], None]

RANK: tuple[Verdict, ...] = ("will-train", "cannot-say", "at-risk", "will-not-train")
"""Verdicts from the best to the worst."""

SHOWN_METRICS = ("decades", "jacobian_anisotropy", "token_cosine")
"""Headline metrics that are compared: D in decades, kappa_J and the mean cosine between tokens, at the first step."""


@dataclass(frozen=True)
class Measured:
    """The model in one state.

    Attributes:
        diagnosis: How it was judged.
        losses: Loss at the first and at the last step.
    """

    diagnosis: Diagnosis
    losses: tuple[float, float]

    @property
    def codes(self) -> tuple[str, ...]:
        """Rules with findings beyond information, worst first."""
        return tuple(dict.fromkeys(f.code for f in self.diagnosis.findings if f.severity != "info"))

    @property
    def standing(self) -> tuple[int, int, int]:
        """The verdict's rank, then errors and warnings: less is better."""
        severities = [finding.severity for finding in self.diagnosis.findings]
        return RANK.index(self.diagnosis.verdict), severities.count("error"), severities.count("warning")

    def to_object(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        numbers = {name: self.diagnosis.metrics.get(name) for name in SHOWN_METRICS}
        return {
            "verdict": self.diagnosis.verdict,
            "codes": list(self.codes),
            "metrics": {name: None if value is None else json_number(value) for name, value in numbers.items()},
            "loss_first": json_number(self.losses[0]),
            "loss_last": json_number(self.losses[1]),
        }


@dataclass(frozen=True)
class Trial:
    """One remedy, tried.

    Attributes:
        remedy: Which.
        num_places: In how many places it was applied.
        after: The model with it; None where it could not be run.
        error: Why it could not.
    """

    remedy: Remedy
    num_places: int
    after: Measured | None
    error: str = ""


@dataclass(frozen=True)
class Suggestions:
    """Everything that was tried.

    Attributes:
        target: What was mended.
        before: The model as it is.
        trials: The best first.
        not_tried: Remedies there was no place for, with the reason.
        partial: Whether it was interrupted.
    """

    target: str
    before: Measured
    trials: tuple[Trial, ...]
    not_tried: tuple[tuple[str, str], ...] = field(default=())
    partial: bool = False

    @property
    def helpful(self) -> tuple[Trial, ...]:
        """Those with a better verdict than before; where there is none, those with fewer errors or warnings."""
        before = self.before.standing
        standings = [(trial, trial.after.standing) for trial in self.trials if trial.after]
        better = tuple(trial for trial, standing in standings if standing[0] < before[0])
        return better or tuple(trial for trial, standing in standings if standing < before)

    def to_object(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        helpful = {trial.remedy.name for trial in self.helpful}
        return {
            "format": "gradscope-suggestions",
            "schema": 1,
            "target": self.target,
            "before": self.before.to_object(),
            "trials": [
                {
                    "remedy": trial.remedy.name,
                    "title": trial.remedy.title,
                    "how": trial.remedy.how,
                    "source": trial.remedy.source,
                    "places": trial.num_places,
                    "helps": trial.remedy.name in helpful,
                    "after": None if trial.after is None else trial.after.to_object(),
                    "error": trial.error,
                }
                for trial in self.trials
            ],
            "not_tried": [{"remedy": name, "why": why} for name, why in self.not_tried],
            "partial": self.partial,
        }


def suggest(
    subject: Subject,
    settings: ProbeSettings,
    *,
    remedies: Sequence[Remedy] = REMEDIES,
    thresholds: Mapping[str, float] | None = None,
    progress: Progress = lambda _what, _done, _total: None,
) -> Suggestions:
    """Measure the model as it is, then with each remedy, and rank them.

    Args:
        subject: The model with its batches and loss; afterwards it is what it was.
        settings: How it is watched, the same every time.
        remedies: What to try.
        thresholds: Of the rules.
        progress: Told of each remedy.

    Returns:
        What was measured. After Ctrl-C what was tried until then, marked partial.

    Raises:
        GradscopeError: The model as it is cannot be measured.
        KeyboardInterrupt: Ctrl-C before the model as it is was measured.
    """
    progress("as it is", 0, len(remedies) + 1)
    recording = measure(subject, settings)
    before = _judged(recording, thresholds)
    places = find_places(recording, redrawable=not subject.weights)
    trials: list[Trial] = []
    not_tried: list[tuple[str, str]] = []
    partial = False
    try:
        for number, remedy in enumerate(remedies, start=1):
            progress(remedy.title, number, len(remedies) + 1)
            trial = _try(remedy, subject, places, settings, thresholds)
            if trial is None:
                not_tried.append((remedy.name, remedy.missing))
            else:
                trials.append(trial)
    except KeyboardInterrupt:
        partial = True
    trials.sort(key=_order)
    return Suggestions(subject.target, before, tuple(trials), tuple(not_tried), partial)


def _try(
    remedy: Remedy,
    subject: Subject,
    places: Places,
    settings: ProbeSettings,
    thresholds: Mapping[str, float] | None,
) -> Trial | None:
    """Measure the model with one remedy on; None where there is no place for it."""
    with ExitStack() as undo:
        # What a remedy draws must not depend on which others were tried before it.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed or 0)
            num_places = remedy.apply(subject.model, places, undo)
        if not num_places:
            return None
        try:
            recording = measure(subject, replace(settings, lr=settings.lr * remedy.lr_factor))
        except MeasurementInterrupted:
            raise
        except GradscopeError as error:
            return Trial(remedy, num_places, None, str(error))
    return Trial(remedy, num_places, _judged(recording, thresholds))


def _judged(recording: Recording, thresholds: Mapping[str, float] | None) -> Measured:
    losses = [float(loss) for loss in recording.tables["steps"]["loss"] if loss is not None] or [math.nan]
    return Measured(diagnose(recording, thresholds), (losses[0], losses[-1]))


def _order(trial: Trial) -> tuple[float, ...]:
    """The best first; among equals the one whose loss fell to less."""
    if trial.after is None:
        return (math.inf,)
    loss = trial.after.losses[1]
    return (*trial.after.standing, loss if math.isfinite(loss) else math.inf)
