"""Lists and words that a configuration leaves open and its models read: as its documentation shows them."""

from __future__ import annotations

import inspect
import re
from typing import Any

from gradscope.target.hf.settings import read_setting

EXAMPLE = re.compile(r'\[("\w+"(?:, *"\w+")*)(?:, *\.\.\.)?\]')
"""A list of words, as a documentation gives one for an example: the kind of each layer."""
WORD = re.compile(r'`"([^"`]+)"`')
"""A value that a documentation quotes."""
HELD = re.compile(r"\b(?!Optional|Union)\w+\[[^\[\]]*\]")
"""What a list or a mapping is annotated to hold."""
ROWS = re.compile(r"`\[(\w+(?:, *\w+)+)\]` (?:pairs|triples|lists)")
"""What each entry of a list of lists holds."""


def takes_numbers(annotation: str) -> bool:
    """Whether a setting annotated so, or not at all, may be a plain number; one inside a list is none."""
    return not annotation or bool(re.search(r"\b(int|float|Any)\b", _outside(annotation)))


def takes_lists(annotation: str) -> bool:
    """Whether a setting annotated so may be a list, and no plain number."""
    return bool(re.search(r"\b([Ll]ist|[Tt]uple|Sequence)\b", annotation)) and not takes_numbers(annotation)


def takes_words(annotation: str) -> bool:
    """Whether a setting annotated so may be a word, and neither a plain number nor a list."""
    is_other = takes_numbers(annotation) or takes_lists(annotation)
    return not is_other and bool(re.search(r"\bstr\b", _outside(annotation)))


def takes_tables(annotation: str) -> bool:
    """Whether a setting annotated so may be a mapping."""
    return bool(re.search(r"\b([Dd]ict|Mapping)\b", annotation))


def _outside(annotation: str) -> str:
    """Return an annotation without what its lists and mappings hold."""
    while HELD.search(annotation):
        annotation = HELD.sub("", annotation)
    return annotation


def annotation_of(owner: Any, name: str) -> str:
    """Return how the constructor of a configuration annotates a setting; an empty string where it does not."""
    parameter = inspect.signature(type(owner)).parameters.get(name)
    if parameter is None or parameter.annotation is parameter.empty:
        return ""
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def list_for(name: str, owner: Any) -> list[Any]:
    """Return a list for a setting: the example of its documentation, one row of first layers, or an empty one."""
    told = _told(name, owner)
    if match := EXAMPLE.search(told):
        words = re.findall(r"\w+", match[1])
        layers = read_setting(owner, "num_hidden_layers")
        missing = layers - len(words) if isinstance(layers, int) else 0
        return (words + words[-1:] * missing)[: layers if isinstance(layers, int) else None]
    if match := ROWS.search(told):
        return [[0] * len(match[1].split(","))]
    return []


def word_for(name: str, owner: Any) -> str | None:
    """Return the first word that the documentation of a setting quotes."""
    match = WORD.search(_told(name, owner))
    return match[1] if match else None


def _told(name: str, owner: Any) -> str:
    """Return what the documentation of a configuration says of a setting."""
    match = re.search(rf"^ *{name} \(.*?(?=^ *\w+ \(`|\Z)", inspect.getdoc(type(owner)) or "", re.MULTILINE | re.DOTALL)
    return match[0] if match else ""
