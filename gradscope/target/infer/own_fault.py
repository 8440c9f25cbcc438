"""Failures that no inputs mend: a model reads what it does not have, whatever it is given."""

from __future__ import annotations

import re
import traceback

import torch

from gradscope.target.infer.absence import NO_IDS
from gradscope.target.infer.guess import Candidate

OWN = re.compile(r"\bself\.(\w+)")
"""What a line reads of what an object has kept."""
WORD = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
"""What a line reads by its name alone."""


def is_own_fault(error: BaseException, candidate: Candidate) -> bool:
    """Whether an object that the model made itself lacks what its code reads, or has it open.

    An output without the field that is read, a table of words that nobody gave: other sizes of the inputs cannot help.
    """
    if isinstance(error, AttributeError):
        return _is_own_object(error.obj, candidate) and not NO_IDS.search(str(error))
    return isinstance(error, TypeError) and "NoneType" in str(error) and _reads_open(error)


def _is_own_object(value: object, candidate: Candidate) -> bool:
    """Whether an object is none that inputs are made of: no tensor, nothing built in, no holder of inputs."""
    holds_inputs = any(guess.kind == "object" for _, guess in candidate)
    return not holds_inputs and type(value).__module__ != "builtins" and not isinstance(value, torch.Tensor)


def _reads_open(error: BaseException) -> bool:
    """Whether the failing line reads something kept that is None, and no variable that is."""
    frame = list(traceback.walk_tb(error.__traceback__))[-1][0]
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    kept, names = frame.f_locals.get("self"), set(WORD.findall(line))
    is_variable = any(value is None and name in names for name, value in frame.f_locals.items())
    return not is_variable and any(getattr(kept, name, 0) is None for name in OWN.findall(line))
