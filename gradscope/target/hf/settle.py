"""Settle on a class, a configuration and a batch that go together."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradscope.errors import GradscopeError, MissingLibraryError, TargetError
from gradscope.target.blame import raised
from gradscope.target.draws import Draws
from gradscope.target.hf.attempt import NOT_CALLED, Attempt, Settled, inputs_of, note_of
from gradscope.target.hf.facts import FIRST_CLASS
from gradscope.target.hf.heads import by_reach, classes_of, is_listed
from gradscope.target.hf.maps import more_maps
from gradscope.target.hf.order import Prepare, in_turn, leaving_idle
from gradscope.target.hf.parts import owners_of
from gradscope.target.hf.portion import settled_part
from gradscope.target.hf.prepare import MOST_PARAMETERS, Prepared, prepared
from gradscope.target.hf.refit import other_sizes, settled_refitted
from gradscope.target.hf.repair import built, left_open
from gradscope.target.hf.shrink import UNCHANGED
from gradscope.target.infer.search import Inferred
from gradscope.target.infer.trials import NothingFitsError
from gradscope.target.inference_only import refuse, switch_of

NEEDED_LIBRARY = re.compile(r"requires the (\S+) library")
"""The library that transformers says is missing."""
OPEN = "NoneType"
"""What Python says of a setting that is left open where a model cannot do without it."""
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

    def is_hopeless(self, attempt: Attempt) -> bool:
        """Whether the class has been shown to lack something of its own at another size, fed alike."""
        return any(
            failure.is_own and (other.cls, other.partial) == (attempt.cls, attempt.partial)
            for other, _, failure in self.stuck
        )

    @property
    def mendable(self) -> list[tuple[Attempt, Any, NothingFitsError]]:
        """The stuck attempts that other inputs or other sizes may still help."""
        return [entry for entry in self.stuck if not self.is_hopeless(entry[0])]


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
    wholes, portions = by_reach(classes, config_class)
    draws, first = Draws(), _Tried()
    prepare = functools.cache(functools.partial(prepared, config_class, given))
    for attempts in in_turn(wholes, portions, prepare):
        draws.again()
        tried = _Tried()
        if (found := _settled_by(attempts, prepare, model_type, label, tried)) is not None:
            is_known = is_listed(type(found.model), model_type, config_class)
            if is_known or class_name or tried.first is None:
                return found
            return _or_whole(found, tried.first, prepare, draws, model_type, label)
        # Should nothing run, the first turn that built a model is told of, or else the first one's failure.
        first = tried if first.first is None and (tried.first or first.failure is None) else first
    settled = (None if class_name else settled_part(config_class, given, label, first.first)) or first.first
    if settled is None and OPEN in str(first.failure):
        draws.again()
        opening, opened = functools.cache(functools.partial(prepared, config_class, given, opens=True)), _Tried()
        attempts = next(in_turn(wholes, {} if wholes else portions, opening))
        settled = _first_that_runs(attempts, opening, model_type, label, opened) or opened.first
    if settled is not None:
        return settled
    owner = next((owner.model_type for owner, _ in owners_of(config_class)), "")
    failure, ready = first.failure, first.ready
    names = left_open(ready.config, failure) if ready is not None and failure is not None else []
    raise _unbuildable(
        model_type, label, failure, has_classes=bool(classes), owner=owner, open_settings=names
    ) from failure


def _or_whole(found: Settled, first: Settled, prepare: Prepare, draws: Draws, model_type: str, label: str) -> Settled:
    """Rather settle on the first class with a part idle, where what was found is a smaller one of its configuration.

    An encoder has the configuration of the whole; where that does not run at all, it is said to be a part.
    """
    sizes = [sum(p.numel() for p in one.model.parameters()) for one in (found, first)]
    if sizes[0] >= sizes[1] or type(found.model) is type(first.model):
        return found
    after = Draws()
    draws.again()
    attempts = leaving_idle([type(first.model)], prepare)
    if (whole := _first_that_runs(attempts, prepare, model_type, label, _Tried())) is not None:
        return whole
    after.again()
    said = f"Only {type(found.model).__name__}, a part of {type(first.model).__name__}: {NOT_CALLED}."
    return replace(found, notes=(*found.notes, said))


def _settled_by(
    attempts: Iterable[Attempt], prepare: Prepare, model_type: str, label: str, tried: _Tried
) -> Settled | None:
    """Settle on the first attempt that inputs go through, if need be once sizes are mended, or by last resorts."""
    draws = Draws()
    if (found := _first_that_runs(attempts, prepare, model_type, label, tried)) is not None:
        return _better(found, tried, draws, model_type, label) or found
    draws.again()
    return (
        settled_refitted(tried.mendable, other_sizes, model_type, label)
        or _with_last_resorts(tried, model_type, label)
        or settled_refitted(tried.mendable, more_maps, model_type, label)
    )


def _first_that_runs(
    attempts: Iterable[Attempt], prepare: Prepare, model_type: str, label: str, tried: _Tried
) -> Settled | None:
    """Return the model of the first attempt that inputs go through; `tried` tells of those that none go through."""
    draws, started = Draws(), time.process_time()
    for attempt in attempts:
        if tried.first is not None and time.process_time() - started > MOST_SECONDS:
            break
        if tried.is_hopeless(attempt):
            continue
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
    for attempt, config, failure in tried.mendable[:MOST_LAST]:
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
    return sorted(trained, key=lambda cls: cls.__name__ != preferred)
