"""Settle on a class, a configuration and a batch that go together."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradscope.errors import GradscopeError, MissingLibraryError, TargetError
from gradscope.target.blame import raised
from gradscope.target.draws import Draws
from gradscope.target.hf.attempt import Attempt, Settled, inputs_of, note_of
from gradscope.target.hf.facts import FIRST_CLASS
from gradscope.target.hf.guesses import feeds_several
from gradscope.target.hf.heads import classes_of
from gradscope.target.hf.maps import more_maps
from gradscope.target.hf.parts import owners_of
from gradscope.target.hf.portion import settled_part
from gradscope.target.hf.prepare import MOST_PARAMETERS, Prepared, prepared
from gradscope.target.hf.refit import other_sizes, settled_refitted
from gradscope.target.hf.repair import built, left_open
from gradscope.target.hf.shrink import IN_STEP, LEVELS, SAME_WIDTHS, SMALL, UNCHANGED
from gradscope.target.infer.search import Inferred
from gradscope.target.infer.trials import NothingFitsError
from gradscope.target.inference_only import refuse, switch_of

NEEDED_LIBRARY = re.compile(r"requires the (\S+) library")
"""The library that transformers says is missing."""
MOST_CLASSES = 3
"""Classes of a model type that are tried."""
MANY_PARAMETERS, LESS = 30_000_000, 3
"""More parameters make a miniature slow to step and to look for inputs of; what a smaller one must be smaller by."""
OPEN = "NoneType"
"""What Python says of a setting that is left open where a model cannot do without it."""
Prepare = Callable[[Any, int], Prepared]
"""Takes a class and a level."""
WHOLE_LEVELS = (SMALL, SAME_WIDTHS, IN_STEP)
"""Levels at which inputs for all of a model of several kinds of input are looked for."""
MOST_LAST = 2
"""Attempts (count) for which last resorts are tried where inputs were found for none."""
MOST_SECONDS = 30.0
"""Processor time after which no further class or size is tried."""


@dataclass
class _Tried:
    """What became of the attempts at a type where none settled it.

    Attributes:
        first: The first model that could be built, without inputs.
        failure: The most telling of what was raised while one was built.
        ready: The configuration that was prepared last.
        stuck: The attempts for whose model no inputs were found, each with its configuration and why.
    """

    first: Settled | None = None
    failure: Exception | None = None
    ready: Prepared | None = None
    stuck: list[tuple[Attempt, Any, NothingFitsError]] = field(default_factory=list)

    def failed(self, error: Exception, level: int) -> None:
        """Note what was raised; what a full-sized model raises of itself tells most."""
        is_telling = level == UNCHANGED and not isinstance(error, RuntimeError | MemoryError)
        self.failure = error if self.failure is None or is_telling else self.failure


def settle(model_type: str, class_name: str, given: Mapping[str, Any], label: str) -> Settled:
    """Build a tiny model of a type that goes through a forward.

    Every attempt is built from the state of the generators at entry, so that the settled model is the one that the
    seed alone gives.

    Raises:
        TargetError: If no class of the type can be built.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    classes = _classes(model_type, config_class, class_name, label)
    draws, tried = Draws(), _Tried()
    prepare = functools.cache(functools.partial(prepared, config_class, given))
    if (found := _first_that_runs(_attempts(classes, prepare), prepare, model_type, label, tried)) is not None:
        return _better(found, tried, draws, model_type, label) or found
    draws.again()
    if (refitted := settled_refitted(tried.stuck, other_sizes, model_type, label)) is not None:
        return refitted
    if (found := _with_last_resorts(tried, model_type, label)) is not None:
        return found
    if (refitted := settled_refitted(tried.stuck, more_maps, model_type, label)) is not None:
        return refitted
    settled = (None if class_name else settled_part(config_class, given, label, tried.first)) or tried.first
    if settled is None and OPEN in str(tried.failure):
        draws.again()
        opening, opened = functools.cache(functools.partial(prepared, config_class, given, opens=True)), _Tried()
        found = _first_that_runs(_attempts(classes, opening), opening, model_type, label, opened)
        settled = found or opened.first
    if settled is not None:
        return settled
    owner = next((owner.model_type for owner, _ in owners_of(config_class)), "")
    failure, ready = tried.failure, tried.ready
    names = left_open(ready.config, failure) if ready is not None and failure is not None else []
    raise _unbuildable(
        model_type, label, failure, has_classes=bool(classes), owner=owner, open_settings=names
    ) from failure


def _first_that_runs(
    attempts: Iterable[Attempt], prepare: Prepare, model_type: str, label: str, tried: _Tried
) -> Settled | None:
    """Return the model of the first attempt that inputs go through; `tried` tells of those that none go through."""
    draws, started = Draws(), time.process_time()
    for attempt in attempts:
        if tried.first is not None and time.process_time() - started > MOST_SECONDS:
            break
        draws.again()
        try:
            tried.ready = prepare(attempt.cls, attempt.level)
            if tried.ready.is_large:
                continue
            model = built(attempt.cls, tried.ready.config)
        except TargetError:
            raise
        except Exception as error:  # a configuration that does not fit raises anything
            tried.failed(error, attempt.level)
            continue
        inferred = inputs_of(model, attempt, tried.ready.config, label)
        notes = (note_of(attempt, model_type),)
        if isinstance(inferred, Inferred):
            return Settled(model, inferred, notes)
        if inferred is not None:
            tried.stuck.append((attempt, tried.ready.config, inferred))
        tried.first = tried.first or Settled(model, None, notes)
    return None


def _with_last_resorts(tried: _Tried, model_type: str, label: str) -> Settled | None:
    """Return the first model for which inputs are found after all; every one is built from the present numbers."""
    draws = Draws()
    for attempt, config, failure in tried.stuck[:MOST_LAST]:
        model = built(attempt.cls, config)
        found = inputs_of(model, attempt, config, label, after=failure)
        if isinstance(found, Inferred):
            return Settled(model, found, (note_of(attempt, model_type),))
        draws.again()
    return None


def _better(found: Settled, tried: _Tried, draws: Draws, model_type: str, label: str) -> Settled | None:
    """Settle on a class that comes before the one found, where its backbone has only kept back maps that it joins."""
    after, others = Draws(), [entry for entry in tried.stuck if entry[0].cls is not type(found.model)]
    draws.again()
    better = settled_refitted(others, more_maps, model_type, label)
    if better is None:
        after.again()
    return better


def _unbuildable(
    model_type: str,
    label: str,
    failure: Exception | None,
    *,
    has_classes: bool = False,
    owner: str = "",
    open_settings: Sequence[str] = (),
) -> GradscopeError:
    if failure is None and has_classes:
        return TargetError(
            f"{label} has more than {MOST_PARAMETERS // 10**6} million parameters, however small it is made.",
            rule="A step of such a model takes too much time and memory for an example.",
            hint=f"gradscope inspect {label} -a key=value, with the settings that make it small",
        )
    if failure is None:
        return TargetError(
            f"transformers has no model for {model_type!r} that can be called.",
            rule=f"It configures a part of {owner}, which has no such part by default." if owner else "",
            hint=f"gradscope inspect hf:{owner}" if owner else "",
        )
    if isinstance(failure, ImportError) and (library := NEEDED_LIBRARY.search(str(failure))):
        return MissingLibraryError(
            f"{label} needs {library[1]}, which is not installed.", hint=f"pip install {library[1]}"
        )
    doing = f"Building {label} from its default configuration"
    if open_settings:
        doing += f", which leaves {' and '.join(open_settings)} open,"
        return raised(failure, doing, TargetError, f"gradscope inspect {label} -a {open_settings[0]}=value")
    return raised(failure, doing, TargetError, f"gradscope inspect {label} -a key=value, with a setting that it needs")


def _classes(model_type: str, config_class: type, class_name: str, label: str) -> list[Any]:
    """Return the classes to try, or the one that was asked for.

    Raises:
        TargetError: If there is none of that name.
        InferenceOnlyError: If all that there are turn gradients off.
    """
    classes: list[Any] = classes_of(model_type, config_class)
    if class_name:
        named = [cls for cls in classes if cls.__name__ == class_name]
        if not named:
            names = ", ".join(cls.__name__ for cls in classes)
            raise TargetError(f"{model_type} has no class {class_name!r}.", rule=f"It has {names}.")
        refuse(named[0], label)
        return named
    preferred = FIRST_CLASS.get(model_type)
    trained = [cls for cls in classes if not switch_of(cls)]
    if classes and not trained:
        refuse(classes[0], label)
    return sorted(trained, key=lambda cls: cls.__name__ != preferred)[:MOST_CLASSES]


def _attempts(classes: list[Any], prepare: Prepare) -> Iterator[Attempt]:
    """Yield everything small first, then depth alone; a model of several kinds of input is first fed all of them."""
    for level in LEVELS:
        for cls in classes:
            if level in WHOLE_LEVELS or not feeds_several(cls):
                yield from (Attempt(cls, each, partial=False) for each in _in_order(cls, level, prepare))
    for level in LEVELS:
        for cls in classes:
            if feeds_several(cls):
                yield from (Attempt(cls, each, partial=True) for each in _in_order(cls, level, prepare))


def _in_order(cls: Any, level: int, prepare: Prepare) -> tuple[int, ...]:
    """Return a level, with widths in step before a miniature that is still large: convolutions keep theirs in it."""
    if level not in (SMALL, IN_STEP):
        return (level,)
    try:
        small, in_step = (prepare(cls, each).num_parameters or 0 for each in (SMALL, IN_STEP))
    except Exception:  # what is wrong with a configuration is told where it is tried
        return (level,)
    if small <= MANY_PARAMETERS or small < LESS * in_step:
        return (level,)
    return (IN_STEP, SMALL) if level == SMALL else ()
