"""Mend a configuration that its models cannot be built from: settings that it lacks, or leaves open."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from gradscope.target.hf.agree import MOST_REPAIRS
from gradscope.target.hf.fit import plain_rotation
from gradscope.target.hf.opened import obey, opened
from gradscope.target.hf.settings import UNREADABLE, all_parts, constructor_values, named_parts, read_setting
from gradscope.target.hf.sizes import HIGHEST_ID, SPECIAL_ID, smaller
from gradscope.target.hf.told import (
    annotation_of,
    list_for,
    takes_lists,
    takes_numbers,
    takes_tables,
    takes_words,
    word_for,
)
from gradscope.target.hf.written import source_of_module

LACKS = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
"""What Python says of a setting that a configuration does not have."""
WORD = re.compile(r"[A-Za-z_]\w*")
JOINED = re.compile(r"can only concatenate (list|tuple) \(not \"(tuple|list)\"\)")
"""What Python says where settings that stand in a configuration's file as lists are something else by default."""
ASKED = re.compile(r"make sure that `(?:\w+\.)?(\w+) ?= ?(True|False)`")
"""What a class says of a switch that it needs to be the other way."""
READ = re.compile(r"\bconfig\.(\w+)")
"""Settings that a line of a model reads."""
OWN = re.compile(r"\bself\.(\w+)")
"""What a line reads of what a module has kept."""
AS_TABLE = re.compile(r"'NoneType' object has no attribute '(get|items|keys|values)'")
"""What Python says where a table is missing that a model looks things up in."""
CHANCE = re.compile(r"drop")
"""Settings of how often something is left out at random."""
HUGE = 10**12
"""Larger than every size that a name may stand for."""


def built(cls: Callable[[Any], Any], config: Any, *, opens: bool = False) -> Any:
    """Return a model built from a configuration; settings that it lacks or leaves open are filled until it can be.

    Args:
        cls: The class of the model.
        config: Its configuration.
        opens: Whether to fill open sizes as well whose names do not say how large they may be.

    Raises:
        Exception: What the model raised, where nothing is left to fill.
    """
    for _ in range(MOST_REPAIRS):
        try:
            return cls(config)
        except Exception as error:  # a configuration that does not fit raises anything
            is_filled = _fill(config, error)
            if not is_filled and not (opens and opened(list(_missing(config, error)))):
                raise
            _complete(config, cls)
            if not is_filled:
                obey(config)
    return cls(config)


def _fill(config: Any, error: Exception) -> bool:
    """Fill what a failure to build a model shows to be missing; False where nothing can be."""
    if isinstance(error, KeyError) and _rotates_each(config, error):
        return True
    if (match := ASKED.search(str(error))) and read_setting(config, match[1]) is (match[2] != "True"):
        setattr(config, match[1], match[2] == "True")
        return True
    if JOINED.search(str(error)):
        return _as_lists(config, error)
    for owner, name in _missing(config, error):
        value = _value_for(name, owner, config)
        if value is None and AS_TABLE.search(str(error)) and takes_tables(annotation_of(owner, name)):
            value = {}
        if value is not None:
            setattr(owner, name, value)
            return True
    return False


def _rotates_each(config: Any, error: KeyError) -> bool:
    """Let each kind of layer rotate, where a model looks for how one does and the configuration does not say."""
    for owner in all_parts(config):
        kinds, told = set(getattr(owner, "layer_types", None) or ()), getattr(owner, "rope_parameters", None)
        if error.args and error.args[0] in kinds and error.args[0] not in (told or {}):
            owner.rope_parameters = {**(told or {}), **{kind: plain_rotation(owner) for kind in kinds}}
            return True
    return False


def _as_lists(config: Any, error: Exception) -> bool:
    """Make lists of the settings that the failing line reads, as they are where a file holds them."""
    names = READ.findall(traceback.extract_tb(error.__traceback__)[-1].line or "")
    owned = ((owner, name) for owner in all_parts(config) for name in names)
    others = [(owner, name) for owner, name in owned if type(read_setting(owner, name)) is tuple]
    for owner, name in others:
        setattr(owner, name, list(read_setting(owner, name)))
    return bool(others)


def _complete(config: Any, cls: Any) -> None:
    """Fill the sizes that a configuration leaves open and its models read: where one was missing, more are."""
    asked = set(READ.findall(source_of_module(cls.__module__)))
    for owner in all_parts(config):
        for name, value in constructor_values(owner).items():
            size = _value_for(name, owner, config) if value is None and name in asked else None
            if isinstance(size, int | float):
                setattr(owner, name, size)


def _missing(config: Any, error: Exception) -> Iterator[tuple[Any, str]]:
    """Yield the settings that a configuration, or a part of it, lacks, or leaves open where a model wants a number."""
    owners = list(all_parts(config))
    if match := LACKS.search(str(error)):
        yield from ((owner, match[2]) for owner in owners if type(owner).__name__ == match[1])
    if "None" not in str(error) and not isinstance(error, TypeError):
        return
    frames = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    entries = traceback.extract_tb(error.__traceback__)
    for entry, module in zip(reversed(entries), reversed(frames), strict=True):
        for name in (*READ.findall(entry.line or ""), *_kept_by(module, entry.line or "")):
            yield from ((owner, name) for owner in owners if read_setting(owner, name) is None)


def _kept_by(module: Any, line: str) -> list[str]:
    """Return the settings behind what a module has kept of them, is None, and is used in a line."""
    names = [name for name in OWN.findall(line) if getattr(module, name, 0) is None]
    try:
        source = inspect.getsource(type(module)) if names else ""
    except (OSError, TypeError):
        return []
    kept = (re.findall(rf"self\.{name}\b[^\n=]*= *\w*\.?config\.(\w+)", source) for name in names)
    return [setting for settings in kept for setting in settings]


def left_open(config: Any, error: Exception) -> list[str]:
    """Return the settings that a configuration leaves open and a model could not be built without, as -a names them."""
    lines = [entry.line or "" for entry in traceback.extract_tb(error.__traceback__)] if "None" in str(error) else []
    words = set(WORD.findall(lines[-1])) if lines else set()
    settings = ((path, name, value) for path, part in named_parts(config) for name, value in vars(part).items())
    return [path + name for path, name, value in settings if value is None and name in words]


def _value_for(name: str, owner: Any, config: Any) -> Any:
    """Return what a setting may be: as another part has it, as its documentation shows, or as its name says."""
    for part in all_parts(config):
        if part is not owner and read_setting(part, name) not in (UNREADABLE, None):
            return read_setting(part, name)
    annotation = annotation_of(owner, name)
    if takes_lists(annotation):
        return list_for(name, owner)
    if not takes_numbers(annotation):
        return word_for(name, owner) if takes_words(annotation) else None
    if CHANCE.search(name):
        return 0.0
    if SPECIAL_ID.search(name):
        return HIGHEST_ID - 1
    if re.search(r"key_value_heads|kv_heads", name):
        return next((n for a in ("num_attention_heads", "n_heads") if type(n := read_setting(owner, a)) is int), None)
    size = smaller(name, HUGE)
    return size if size < HUGE else None
