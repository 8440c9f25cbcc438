"""One target loaded and stepped once, in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
import warnings
from typing import Any

import torch

from gradscope.errors import GradscopeError, InferenceOnlyError, InputsError, LossError
from gradscope.target import load
from gradscope.target.blame import raised
from gradscope.target.hf.attempt import NOT_CALLED
from zoo.coverage_table import (
    INFERENCE_ONLY,
    KILLED,
    NO_GRADIENT,
    NO_INPUTS,
    NOT_BUILT,
    NOT_FINITE,
    PART_STEPS,
    STEP_RAISED,
    STEPS,
    Row,
)

MOST_BYTES = 6 * 2**30
"""Memory of one process."""
DETAIL_CHARACTERS = 300
OUT_OF_MEMORY = "ran out of memory"
"""What `raised` says of it."""
GRACE_S = 5
"""Between the signal that says that the time is up and the one that cannot be caught."""


def in_child(target: str, limit_s: int) -> Row:
    """Load and step a target in a forked process, so that one model's crash or hunger is its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run(target, write, limit_s)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if told:
        row: Row = json.loads(told)
        return row
    ended = -os.waitstatus_to_exitcode(status)
    late = f"more than {limit_s} s of processor time"
    return _row(target, KILLED, late if ended == signal.SIGXCPU else f"ended by signal {ended}")


def _run(target: str, pipe: int, limit_s: int) -> None:
    """Report what comes of a target and leave the process; whatever the model prints goes nowhere."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    spent = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (spent + limit_s, spent + limit_s + GRACE_S))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")
    try:
        os.write(pipe, json.dumps(_tried(target)).encode())
    finally:
        os._exit(0)


def _tried(target: str) -> Row:
    start = time.process_time()
    outcome, detail = NOT_BUILT, ""
    more: dict[str, str] = {}
    try:
        subject = load(target)
        outcome = STEP_RAISED
        outcome, more = _stepped(subject)
        part = next((note for note in subject.notes if NOT_CALLED in note), "")
        outcome = PART_STEPS if part and outcome == STEPS else outcome
        detail = f"{part} {subject.inputs_origin.text}"
    except InputsError as error:
        outcome, detail = NO_INPUTS, str(error)
    except InferenceOnlyError as error:
        outcome, detail = INFERENCE_ONLY, str(error)
    except GradscopeError as error:
        outcome, detail = NO_GRADIENT if isinstance(error, LossError) else outcome, str(error)
    except Exception as error:  # whatever a library raises is a row of the table
        detail = str(raised(error, f"A step of {target}", GradscopeError))
    outcome = KILLED if OUT_OF_MEMORY in detail else outcome
    return {**_row(target, outcome, detail), **more, "cpu_s": f"{time.process_time() - start:.1f}"}


def _stepped(subject: Any) -> tuple[str, dict[str, str]]:
    """Take one forward and backward, and say what came of it."""
    torch.manual_seed(0)
    batch = next(iter(subject.batches))
    loss = subject.loss(subject.call(batch), batch)
    loss.backward()
    gradients = [p.grad for p in subject.model.parameters() if p.requires_grad]
    given = [g.to_dense() if g.is_sparse else g for g in gradients if g is not None]
    is_finite = bool(torch.isfinite(loss)) and all(_all_finite(g) for g in given)
    outcome = STEPS if given and is_finite else NOT_FINITE if given else NO_GRADIENT
    return outcome, {
        "model": type(subject.model).__name__,
        "idle": str(len(gradients) - len(given)),
        "parameters": str(len(gradients)),
    }


def _all_finite(gradient: torch.Tensor) -> bool:
    """Whether a gradient has neither NaN nor infinity; without a copy of it, where its numbers are ordered."""
    if gradient.is_complex() or not gradient.numel():
        return bool(torch.isfinite(gradient).all())
    return all(bool(torch.isfinite(end)) for end in gradient.aminmax())


def _row(target: str, outcome: str, detail: str) -> Row:
    text = " ".join(detail.split())[:DETAIL_CHARACTERS]
    return {"target": target, "outcome": outcome, "model": "", "parameters": "", "idle": "", "cpu_s": "",
            "detail": text, "commit": ""}  # fmt: skip
