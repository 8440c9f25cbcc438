"""Settle on a class, a configuration and a batch that go together."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradscope.errors import GradscopeError, InputsError, MissingLibraryError, TargetError
from gradscope.target.blame import raised
from gradscope.target.hf.facts import FIRST_CLASS
from gradscope.target.hf.guesses import feeds_several, guesses
from gradscope.target.hf.heads import classes_of
from gradscope.target.hf.missing import name_missing_tokens
from gradscope.target.hf.repair import built
from gradscope.target.hf.shrink import IN_STEP, LEVELS, SAME_WIDTHS, SMALL, UNCHANGED, tiny
from gradscope.target.infer.first import first_candidates
from gradscope.target.infer.hints import read_hints
from gradscope.target.infer.scratch import scratch_copy
from gradscope.target.infer.search import Inferred, search_inputs

NEEDED_LIBRARY = re.compile(r"requires the (\S+) library")
"""The library that transformers says is missing."""
MOST_CLASSES = 3
"""Classes of a model type that are tried."""
MOST_PARAMETERS = 300_000_000
"""More than that, with widths kept, is too much for a step of a second."""
WHOLE_LEVELS = (SMALL, SAME_WIDTHS, IN_STEP)
"""Levels at which inputs for all of a model of several kinds of input are looked for."""
MOST_SECONDS, MOST_SECONDS_EACH = 30.0, 8.0
"""Processor time after which no further class or size is tried, and time spent on the inputs of each."""
SIZES = {SMALL: "in miniature", IN_STEP: "with few layers, all widths divided alike", UNCHANGED: "in full size"}
"""What the levels are called."""
BLIND_COST = 0.5
"""Cost of guesses from the layers alone against those from the signature and the configuration."""
MOST_TRIALS = 60
"""Forwards tried for each class: a tiny model takes milliseconds."""


@dataclass(frozen=True)
class Settled:
    """A model that was built from the seed, with inputs if any were found.

    Attributes:
        model: The model.
        inferred: A batch it takes; None where none was found.
        notes: What the user should know.
    """

    model: nn.Module
    inferred: Inferred | None
    notes: tuple[str, ...]


def settle(model_type: str, class_name: str, given: Mapping[str, Any], label: str) -> Settled:
    """Build a tiny model of a type that goes through a forward.

    Every attempt is built from the state of the generators at entry, so that the settled model is the one that the
    seed alone gives.

    Raises:
        TargetError: If no class of the type can be built.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    states = torch.get_rng_state(), random.getstate()
    first: Settled | None = None
    failure: Exception | None = None
    started = time.process_time()
    for attempt in _attempts(_classes(model_type, config_class, class_name)):
        if first is not None and time.process_time() - started > MOST_SECONDS:
            break
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        try:
            config = tiny(config_class, given, attempt.level)
            name_missing_tokens(config, attempt.cls)
            if _is_large(attempt.cls, config):
                continue
            model = built(attempt.cls, config)
        except TargetError:
            raise
        except Exception as error:  # a configuration that does not fit raises anything
            is_telling = attempt.level == UNCHANGED and not isinstance(error, RuntimeError | MemoryError)
            failure = error if failure is None or is_telling else failure
            continue
        after = torch.get_rng_state(), random.getstate()
        inferred = _try(model, attempt, config, label)
        torch.set_rng_state(after[0])
        random.setstate(after[1])
        notes = (_note(attempt, model_type),)
        if inferred is not None:
            return Settled(model, inferred, notes)
        first = first or Settled(model, None, notes)
    if first is None:
        raise _unbuildable(model_type, label, failure) from failure
    return first


def _unbuildable(model_type: str, label: str, failure: Exception | None) -> GradscopeError:
    if failure is None:
        return TargetError(f"transformers has no model class for {model_type!r} that runs in PyTorch.")
    if isinstance(failure, ImportError) and (library := NEEDED_LIBRARY.search(str(failure))):
        return MissingLibraryError(
            f"{label} needs {library[1]}, which is not installed.", hint=f"pip install {library[1]}"
        )
    doing = f"Building {label} from its default configuration"
    return raised(failure, doing, TargetError, f"gradscope inspect {label} -a key=value, with a setting that it needs")


@dataclass(frozen=True)
class _Attempt:
    """A class, how far to shrink it, and whether inputs may leave a part of it idle."""

    cls: Any
    level: int
    partial: bool


def _classes(model_type: str, config_class: type, class_name: str) -> list[Any]:
    """Return the classes to try, or the one that was asked for."""
    classes: list[Any] = classes_of(model_type, config_class)
    if class_name:
        named = [cls for cls in classes if cls.__name__ == class_name]
        if not named:
            names = ", ".join(cls.__name__ for cls in classes)
            raise TargetError(f"{model_type} has no class {class_name!r}.", rule=f"It has {names}.")
        return named
    preferred = FIRST_CLASS.get(model_type)
    return sorted(classes, key=lambda cls: cls.__name__ != preferred)[:MOST_CLASSES]


def _attempts(classes: list[Any]) -> Iterator[_Attempt]:
    """Yield everything small first, then depth alone; a model of several kinds of input is first fed all of them."""
    for level in LEVELS:
        for cls in classes:
            if level in WHOLE_LEVELS or not feeds_several(cls):
                yield _Attempt(cls, level, partial=False)
    for level in LEVELS:
        yield from (_Attempt(cls, level, partial=True) for cls in classes if feeds_several(cls))


def _is_large(cls: Any, config: Any) -> bool:
    """Whether a model has more parameters than an example should; counted without making them."""
    try:
        with torch.device("meta"):
            count: int = sum(parameter.numel() for parameter in cls(config).parameters())
            return count > MOST_PARAMETERS
    except Exception:  # some constructors compute with their parameters, which this device cannot
        return False


def _try(model: nn.Module, attempt: _Attempt, config: Any, label: str) -> Inferred | None:
    scratch = scratch_copy(model)
    if scratch is None:
        return None
    fresh: Callable[[], nn.Module | None] = lambda: scratch  # noqa: E731  # BatchNorm's statistics do not matter here
    first = guesses(attempt.cls, config, partial=attempt.partial)
    if attempt.partial or not feeds_several(attempt.cls):
        shapes = ((BLIND_COST + cost, guess) for cost, guess in first_candidates(scratch, read_hints(scratch)))
        first = itertools.chain(first, shapes)
    try:
        return search_inputs(scratch, fresh, label, first, most_trials=MOST_TRIALS, most_seconds=MOST_SECONDS_EACH)
    except InputsError:
        return None


def _note(attempt: _Attempt, model_type: str) -> str:
    level = attempt.level
    size = SIZES.get(level, "with few layers and experts")
    idle = "; no inputs were found that use all of it" if attempt.partial else ""
    name = attempt.cls.__name__
    return f"{name} from the default configuration of {model_type}, {size}{idle}; -a key=value changes it."
