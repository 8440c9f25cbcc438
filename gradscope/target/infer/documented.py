"""The shapes that a model's own words give its inputs: in a docstring, a comment on top of forward, or an annotation.

Four usual forms are read: ``x (`torch.FloatTensor` of shape `(batch_size, frames, feature_dim)`)``,
``x: Tensor, shape [seq_len, batch_size, width]``, the comment ``# x: (B, T, C)`` and the annotation
``Float[Tensor, "batch time width"]``.
"""

from __future__ import annotations

import inspect
import linecache
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from gradscope.target.infer.guess import BATCH, Guess
from gradscope.target.infer.layers import SIDES, TOKENS

MOST_AXES = 6
"""A shape with more axes is no shape of an input."""
UNTOLD = "?"
"""The kind of an input of which only the shape is told."""
UNKNOWN = 3
"""Size of an axis of which nothing but a name is known; unlike the batch of a trial, so that messages tell both."""
ENTRY = re.compile(r"^\s*[-*]?\s*`*(\w+)`*\s*[(:](.*)$")
"""One argument and what is said of it, in the parentheses behind it or behind a colon."""
COMMENT = re.compile(r"^\s*#\s*(.*)$")
"""A line that is a comment."""
SAID = re.compile(r"(?:shapes?|sizes?)\b\W{0,4}[(\[]([^()\[\]]*)[)\]]", re.IGNORECASE)
"""A shape that is said to be one."""
BARE = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
"""A shape, said to be one or not: then an axis of it must be called what axes are called."""
WORDS = re.compile(r"[\w.]+(\s*[+*]\s*[\w.]+)*")
"""An axis: a name or a number, or a sum or product of such."""
TYPED = re.compile(r"(Float|Int|Long|Bool|Half|Double|Complex|Integer|Num|Real|Inexact)(?=Tensor|\[|\b)")
"""What a type says of the numbers in a tensor."""
WRITTEN = re.compile(r"(?P<type>\w+)\[[\w.]*(?:Tensor|Array)\s*,\s*['\"](?P<dims>[^'\"]*)['\"]\]")
"""An annotation that tells a shape, as those of jaxtyping do."""

NODES = re.compile(r"^(n|num)_(nodes|atoms|points|vertices)$", re.IGNORECASE)
"""What the first axis of the nodes of a graph is called."""
AXES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(b|n|bs|bsz|nb|batch|batch_?size|num_samples)$", re.IGNORECASE), "batch"),
    (re.compile(r"^(vocab(_size)?|v)$", re.IGNORECASE), "vocab"),
    (re.compile(r"^(h|w|height|width|img_size|image_size|image_height|image_width)$", re.IGNORECASE), "side"),
    (re.compile(r"^(c|ch|channels?|num_channels|in_channels|image_channels)$", re.IGNORECASE), "channels"),
    (re.compile(r"^(d|e|dim|f|features?|hidden|(hidden|embed|model|feature)_?(dim|size)|d_model|emb)$", re.IGNORECASE),
     "width"),
    (re.compile(r"^(l|t|s|tokens|\w*seq\w*|time|steps|length|\w+_length|num_tokens|frames)$", re.IGNORECASE), "tokens"),
)  # fmt: skip
"""What axes are called."""


def documented(forward: Callable[..., object], sizes: Mapping[str, int]) -> dict[str, Guess]:
    """Return the inputs of a forward whose shape it documents.

    Args:
        forward: The forward of a model or of a class.
        sizes: Whole numbers that the model tells about itself by name, and what it has under the names of `AXES`.
    """
    parameters = inspect.signature(forward).parameters
    annotations = {name: str(parameter.annotation) for name, parameter in parameters.items()}
    words = [inspect.getdoc(forward) or "", *_comments_on_top(forward)]
    if (owner := getattr(forward, "__self__", None)) is not None:
        words.append(inspect.getdoc(type(owner)) or "")
    return _told(annotations, "\n".join(words), sizes)


def _comments_on_top(forward: Callable[..., object]) -> list[str]:
    """Return the comments between the head of a forward and what it does first."""
    code = getattr(forward, "__code__", None)
    if code is None or inspect.unwrap(forward) is not forward:
        return []
    lines = linecache.getlines(code.co_filename)
    first = min((line for _, _, line in code.co_lines() if line and line > code.co_firstlineno), default=0)
    return [match[1] for line in lines[code.co_firstlineno : first - 1] if (match := COMMENT.match(line))]


def documented_fields(cls: type, sizes: Mapping[str, int]) -> dict[str, Guess]:
    """Return the fields of a class whose shape it documents, in its docstring or in their annotations.

    Args:
        cls: A data class, a named tuple or a typed dict.
        sizes: As for `documented`.
    """
    annotations = {name: str(annotation) for name, annotation in inspect.get_annotations(cls).items()}
    return _told(annotations, inspect.getdoc(cls) or "", sizes)


def _told(annotations: Mapping[str, str], words: str, sizes: Mapping[str, int]) -> dict[str, Guess]:
    """Return what annotations and a docstring tell of the shapes of what is annotated."""
    found: dict[str, Guess] = {}
    for name, said, dims in [*_in_annotations(annotations), *_in_docstring(words, annotations)]:
        shape = _shape(dims, sizes)
        if name not in found and 0 < len(shape) <= MOST_AXES:
            found[name] = Guess(_kind(name, said), shape, high=max(sizes.get("vocab", 0), 2))
    return found


def _shape(dims: Sequence[str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the sizes of axes; the nodes of a graph, which come first, are its samples, and there is one batch."""
    shape = [BATCH if not rank and NODES.match(word) else size_of(word, sizes) for rank, word in enumerate(dims)]
    return tuple(UNKNOWN if dim == BATCH and rank and shape[0] == BATCH else dim for rank, dim in enumerate(shape))


def _in_annotations(annotations: Mapping[str, str]) -> Iterator[tuple[str, str, list[str]]]:
    for name, annotation in annotations.items():
        if match := WRITTEN.search(annotation):
            yield name, match["type"], match["dims"].split()


def _in_docstring(text: str, names: Container[str]) -> Iterator[tuple[str, str, list[str]]]:
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if (entry := ENTRY.match(line)) is None or entry[1] not in names:
            continue
        words = line if _axes_in(line) else f"{line} {'' if ENTRY.match(following) else following}"
        if dims := _axes_in(words):
            yield entry[1], words, dims


def _axes_in(words: str) -> list[str]:
    """Return the axes of the shape that some words tell; none where they tell no shape."""
    said = SAID.search(words)
    for match in [said] if said else BARE.finditer(words):
        dims = [dim.strip() for dim in match[1].split(",") if dim.strip()]
        is_list_of_words = all(WORDS.fullmatch(dim) for dim in dims)
        if dims and (said or (len(dims) > 1 and is_list_of_words and any(map(_axis_of, dims)))):
            return dims
    return []


def _axis_of(word: str) -> str:
    """Return the key of `AXES` that a word stands for, or nothing."""
    return next((axis for pattern, axis in AXES if pattern.match(word.rpartition(".")[2])), "")


def size_of(word: str, sizes: Mapping[str, int]) -> int:
    """Return how long an axis of that name is; it may be a sum or a product."""
    if "+" in word:
        return sum(size_of(part.strip(), sizes) for part in word.split("+"))
    if "*" in word:
        return _product([part.strip() for part in word.split("*")], sizes)
    if word.isdigit():
        return int(word)
    axis, last = _axis_of(word), word.rpartition(".")[2].lower()
    if axis == "batch":
        return BATCH
    usual = {"tokens": TOKENS, "side": SIDES[0], "channels": 3}.get(axis, UNKNOWN)
    own = sizes.get(last) if last != "width" or axis == "width" else 0  # the width of a picture is no width of vectors
    return own or sizes.get(axis) or usual


def _product(words: Sequence[str], sizes: Mapping[str, int]) -> int:
    """Return how long an axis of several is: so many rows a sample where one is the batch and the others are known."""
    rest = [word for word in words if _axis_of(word) != "batch"]
    if len(rest) == len(words):
        return math.prod(size_of(word, sizes) for word in words)
    each = [int(word) if word.isdigit() else sizes.get(word.rpartition(".")[2].lower(), 1) for word in rest]
    return -math.prod(each) if math.prod(each) > 1 else BATCH


def _kind(name: str, words: str) -> str:
    """Return what kind of numbers an input holds, by its documented type; UNTOLD where only its shape is told."""
    typed = TYPED.search(words)
    if typed is None:
        return UNTOLD
    if typed[1] == "Bool":
        return "trues"
    if typed[1] in ("Int", "Long", "Integer"):
        return "mask" if "mask" in name else "ids"
    return "float"
