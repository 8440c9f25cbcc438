"""One architecture, looked at as a user would, with a bare step beside it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradscope.probe import measure
from gradscope.probe.restore import ModelState, RandomState
from gradscope.probe.session import Session
from gradscope.probe.settings import ProbeSettings
from gradscope.probe.step import seed_everything
from gradscope.rules import diagnose
from gradscope.target import load
from gradscope.target.subject import Subject
from zoo.catalog import Entry


@dataclass(frozen=True)
class Outcome:
    """What came out for one architecture.

    Attributes:
        target: The target string.
        runs: "yes", or the first line of what went wrong.
        unchanged: Whether loss and every gradient were bitwise those of the bare step; None if it did not run.
        found: Residual additions found.
        expected: Residual additions counted by hand, None where nobody did.
        kinds: Kinds of the sites and their number.
        verdict: The verdict.
        errors: Codes of error-level findings (false alarms: these are standard initialisations).
        hidden: What could not be seen, by name.
        seconds: Wall time of everything.
    """

    target: str
    runs: str
    unchanged: bool | None
    found: int | None
    expected: int | None
    kinds: str
    verdict: str
    errors: str
    hidden: str
    seconds: float

    @property
    def wrong(self) -> list[str]:
        """What is not as it should be, in words."""
        faults = []
        if self.runs != "yes":
            faults.append(f"does not run: {self.runs}")
        elif not self.unchanged:
            faults.append("gradients differ from the bare step")
        if self.runs == "yes" and self.expected is not None and self.found != self.expected:
            faults.append(f"{self.found} residual additions instead of {self.expected}")
        if self.errors:
            faults.append(f"false alarm {self.errors}")
        return faults

    def row(self) -> dict[str, Any]:
        """Return the outcome as a row of the results table, without the time."""
        return {key: "" if value is None else value for key, value in asdict(self).items() if key != "seconds"}


def examine(entry: Entry, num_steps: int) -> Outcome:
    """Load, step bare and watched, and judge one architecture; never raises for a fault of the architecture."""
    start = time.perf_counter()
    found: dict[str, Any] = {"unchanged": None, "found": None, "kinds": "", "verdict": "", "errors": "", "hidden": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found |= _looked_at(entry, num_steps)
            runs = "yes"
        except Exception as error:  # whatever a library raises is a row of the table
            runs = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    return Outcome(entry.target, runs, expected=entry.expected, seconds=time.perf_counter() - start, **found)


def _looked_at(entry: Entry, num_steps: int) -> dict[str, Any]:
    subject = load(entry.target, arguments=entry.arguments, seed=0)
    unchanged = _unchanged(subject)
    watched = tuple(step for step in (0, 3, 10) if step < num_steps)
    recording = measure(subject, ProbeSettings(num_steps=num_steps, watched_steps=watched))
    diagnosis = diagnose(recording)
    sites = list(recording.rows("sites"))
    kinds: dict[str, int] = {}
    for site in sites:
        kinds[site["kind"]] = kinds.get(site["kind"], 0) + 1
    return {
        "unchanged": unchanged,
        "found": sum(bool(site["counted"]) for site in sites),
        "kinds": " ".join(f"{kind}:{count}" for kind, count in sorted(kinds.items())),
        "verdict": diagnosis.verdict,
        "errors": " ".join(sorted({f.code for f in diagnosis.findings if f.severity == "error"})),
        "hidden": "; ".join(row["what"] for row in recording.rows("confessions"))[:200],
    }


def _unchanged(subject: Subject) -> bool:
    """Compare a bare step with a watched one from the same state, bit by bit."""
    batch = next(iter(subject.batches))
    random_state = RandomState()
    bare = _step(subject, batch, None)
    watched = _step(subject, batch, Session(subject.model, "default", Path.cwd()))
    random_state.restore()
    return len(bare) == len(watched) and all(_same(a, b) for a, b in zip(bare, watched, strict=True))


def _step(subject: Subject, batch: Any, session: Session | None) -> list[torch.Tensor | None]:
    state = ModelState(subject.model)
    seed_everything(0)
    for parameter in subject.model.parameters():
        parameter.grad = None
    try:
        if session is None:
            loss = subject.loss(subject.call(batch), batch)
            loss.backward()
        else:
            with session.step(0) as watch:
                with watch.forward():
                    loss = subject.loss(subject.call(batch), batch)
                loss.backward()
        return [loss.detach().clone(), *_gradients(subject.model), *(b.clone() for b in subject.model.buffers())]
    finally:
        state.restore(values=True)


def _gradients(model: nn.Module) -> Iterator[torch.Tensor | None]:
    for parameter in model.parameters():
        yield None if parameter.grad is None else parameter.grad.clone()


def _same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.is_sparse:
        a, b = a.to_dense(), b.to_dense()
    return torch.equal(a.nan_to_num(nan=12345.0), b.nan_to_num(nan=12345.0))
