"""One architecture, looked at as a user would, with a bare step beside it."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from gradscope.errors import InputsError
from gradscope.probe import measure
from gradscope.probe.restore import ModelState, RandomState
from gradscope.probe.seeding import seed_everything
from gradscope.probe.session import Session
from gradscope.probe.settings import DEFAULT_WATCHED_STEPS, ProbeSettings
from gradscope.record import Recording
from gradscope.rules import Diagnosis, diagnose
from gradscope.target import load
from gradscope.target.hf.attempt import NOT_CALLED
from gradscope.target.subject import Subject
from zoo.catalog import Entry
from zoo.limits import time_limit
from zoo.table import NOT_REPEATED, QUICK, QUICK_CPU_S, SLOW, Row, by_hand, cell

HIDDEN_CHARACTERS = 200
"""How much of the list of what could not be seen goes into the table."""


def examine(entry: Entry, num_steps: int, limit_s: float) -> Row:
    """Load, step bare and watched, and judge one architecture; never raises for a fault of the architecture."""
    start = time.process_time()
    found: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with time_limit(limit_s):
                found = _looked_at(entry, num_steps)
            runs = "yes"
        except Exception as error:  # whatever a library raises is a row of the table
            runs = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    pace = QUICK if time.process_time() - start <= QUICK_CPU_S else SLOW
    return Row(entry.target, runs, pace=pace, **by_hand(entry), **found)


def _looked_at(entry: Entry, num_steps: int) -> dict[str, str]:
    subject = load(entry.target, arguments=entry.arguments, seed=0)
    for note in subject.notes:
        if NOT_CALLED in note:
            raise InputsError(note)  # what is then inspected is not the architecture that was asked for
    unchanged = _unchanged(subject)
    recording, diagnosis = _judged(subject, num_steps)
    whole = ProbeSettings().num_steps
    if num_steps < whole and diagnosis.verdict != "will-train":
        recording, diagnosis = _judged(subject, whole)  # a verdict counts as `gradscope inspect` gives it
    sites = list(recording.rows("sites"))
    counted = [site for site in sites if site["counted"]]
    return {
        "unchanged": unchanged,
        "found": str(len(counted)),
        "kinds": cell(Counter(map(_kind, sites))),
        "placements": cell(Counter(str(site["placement"]) for site in counted)),
        "verdict": diagnosis.verdict,
        "errors": " ".join(sorted({f.code for f in diagnosis.findings if f.severity == "error"})),
        "hidden": "; ".join(str(row["what"]) for row in recording.rows("confessions"))[:HIDDEN_CHARACTERS],
    }


def _kind(site: Mapping[str, Any]) -> str:
    """The kind as the table names it: what adds to a state that is carried through time is counted nowhere."""
    return str(site["kind"]) if site["counted"] or site["kind"] == "concat" else "recurrent"


def _judged(subject: Subject, num_steps: int) -> tuple[Recording, Diagnosis]:
    watched = tuple(step for step in DEFAULT_WATCHED_STEPS if step < num_steps)
    recording = measure(subject, ProbeSettings(num_steps=num_steps, watched_steps=watched))
    return recording, diagnose(recording)


def _unchanged(subject: Subject) -> str:
    """Compare a bare step with a watched one from the same state, bit by bit.

    A model that takes seeds from the operating system cannot repeat a step: it is compared with these drawn from
    torch's generator, and said not to repeat where that does not help.
    """
    batch = next(iter(subject.batches))
    random_state = RandomState()
    try:
        for seeds in (nullcontext(), mock.patch("torch.seed", _drawn_seed)):
            with seeds:
                bare = _step(subject, batch, None)
                if _all_same(bare, _step(subject, batch, Session(subject.model, "default", Path.cwd()))):
                    return "yes"
                if _all_same(bare, _step(subject, batch, None)):
                    return "no"
        return NOT_REPEATED
    finally:
        random_state.restore()


def _drawn_seed() -> int:
    """Stand in for `torch.seed`."""
    seed = int(torch.randint(2**62, ()))
    torch.manual_seed(seed)
    return seed


def _all_same(some: list[torch.Tensor | None], others: list[torch.Tensor | None]) -> bool:
    return len(some) == len(others) and all(_same(a, b) for a, b in zip(some, others, strict=True))


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
