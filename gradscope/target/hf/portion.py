"""Settle on a part of a composite model where the whole cannot be run, or where a type is only ever a part."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from gradscope.target.hf.attempt import NOT_CALLED, Attempt, Settled, inputs_of
from gradscope.target.hf.guesses import feeds_several
from gradscope.target.hf.heads import classes_of, holders_of
from gradscope.target.hf.parts import made_from, owners_of, running_alone
from gradscope.target.hf.prepare import prepared
from gradscope.target.hf.repair import built
from gradscope.target.hf.settings import constructor_values, default_of
from gradscope.target.hf.shrink import IN_STEP, SAME_WIDTHS, SMALL, tiny
from gradscope.target.hf.written import source_of_models
from gradscope.target.infer.search import Inferred

PART_OF = "the type is a part of it"
"""Why a part is taken of a composite that has it."""
ASKED = re.compile(r"\bif (?:\w+\.)?config\.(\w+):")
"""What a model has a part for or not."""
MOST_PARTS = 3
"""Parts of a composite that are tried."""


def settled_part(config_class: Any, given: Mapping[str, Any], label: str, whole: Settled | None) -> Settled | None:
    """Settle on a part of a composite that runs alone; None where there is none."""
    for model, why, wanted in _wholes(config_class, given, whole):
        parts = running_alone(model) if wanted is None else made_from(model, wanted)
        for name, part in itertools.islice(parts, MOST_PARTS):
            frozen = ""
            if not any(parameter.requires_grad for parameter in part.parameters()):  # the whole trains without it
                part.requires_grad_(True)
                frozen = ", and freezes it"
            for partial in (False, True) if feeds_several(type(part)) else (False,):
                attempt = Attempt(type(part), SMALL, partial)
                inferred = inputs_of(part, attempt, getattr(part, "config", model.config), label)
                if isinstance(inferred, Inferred):
                    note = f"Only the part {name} of {type(model).__name__}, in miniature: {why}{frozen}."
                    return Settled(part, inferred, (note,))
    return None


def _wholes(
    config_class: Any, given: Mapping[str, Any], whole: Settled | None
) -> Iterator[tuple[nn.Module, str, type | None]]:
    """Yield models that hold what a type has, why a part of them is taken, and what the part was made from."""
    if whole is not None:
        yield whole.model, NOT_CALLED, None
        return
    for cls in holders_of(config_class.model_type, config_class):
        if (model := _miniature(cls, config_class, given)) is not None:
            yield model, "the whole has no forward", None
    for (owner, key), level in _ways(config_class):
        inner: dict[str, Any] = {f"{key}.{name}": value for name, value in given.items()}
        if getattr(default_of(owner), key, None) is None:  # left out by default
            inner = {key: tiny(config_class, given, level)}
        for cls in classes_of(owner.model_type, owner)[:1]:
            if (model := _miniature(cls, owner, inner)) is not None:
                yield model, PART_OF, config_class
    for owner, key in owners_of(config_class):
        for switch in switches(owner, config_class):
            inner = {**{f"{key}.{name}": value for name, value in {**given, switch: True}.items()}, switch: True}
            for cls in classes_of(owner.model_type, owner)[:1]:
                if (model := _miniature(cls, owner, inner)) is not None:
                    yield model, f"{PART_OF} where {switch} is set", config_class


def switches(owner: Any, config_class: Any) -> list[str]:
    """Return what a composite and a part of it both leave off, and the models of the composite ask for: its part."""
    asked = ASKED.findall(source_of_models(owner))
    both = [constructor_values(default_of(cls)) for cls in (owner, config_class)]
    return [name for name in dict.fromkeys(asked) if all(values.get(name) is False for values in both)]


def _ways(config_class: Any) -> Iterator[tuple[tuple[Any, str], int]]:
    """Yield the owners of a part, and how small to make it; those that leave it out once more, with its own widths.

    Of a part that nothing is known of by default, a miniature may forget to shrink a width that another has to equal.
    """
    owners = list(owners_of(config_class))
    yield from ((owner, SMALL) for owner in owners)
    yield from ((owner, SAME_WIDTHS) for owner in owners if getattr(default_of(owner[0]), owner[1], None) is None)


def _miniature(cls: Any, config_class: Any, given: Mapping[str, Any]) -> nn.Module | None:
    """Return a small model of a class; None where its configuration does not fit, or is large all the same."""
    for level in (SMALL, IN_STEP):
        try:
            ready = prepared(config_class, given, cls, level)
            if not ready.is_large:
                model: nn.Module = built(cls, ready.config)
                return model
        except Exception:  # a configuration that does not fit raises anything
            continue
    return None
