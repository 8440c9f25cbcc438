"""What an input of a given name and annotation usually is.

Names are conventions of the field (input_ids, timesteps, mask); structure and errors overrule them during the search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gradscope.target.infer.guess import BATCH, Candidate, Guess
from gradscope.target.infer.layers import DEFAULT_CHANNELS, SIDES, TOKENS, pictures


@dataclass(frozen=True)
class Hints:
    """Numbers that the model tells about itself.

    Attributes:
        vocab: Rows of its largest embedding.
        width: The size that most of its layers have.
        length: The longest sequence it takes.
        channels: Channels of its first convolution.
        side: The side of its pictures.
        classes: Outputs of its last layer.
        sizes: Whole numbers by the names that it, or the field, has for them.
        documented: Inputs whose shape it documents, by name.
        shells: Inputs that hold others and may be left out, by name.
        annotations: What the inputs are annotated with, by name.
        takes_any: Whether the forward takes any keyword.
    """

    vocab: int
    width: int
    length: int
    channels: int
    side: int
    classes: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    documented: Mapping[str, Guess] = field(default_factory=dict)
    shells: Mapping[str, Guess] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    takes_any: bool = False

    @property
    def tokens(self) -> int:
        """A sequence length that fits."""
        return min(TOKENS, self.length)


IDS = re.compile(
    r"(^|_)(ids?|idx|tokens?|indices|index|src|tgt|trg|text|words?|chars?|sentence|seqs?|prompt|question|query_ids)$|input_ids"
)
PICTURE = re.compile(r"im(age|g)s?|pixel|picture|photo|frame|rgb")
TIME = re.compile(r"^(t|ts|time|times|timesteps?|time_steps?|noise_level|sigmas?|step|steps|noise_labels)$")
MASK = re.compile(r"mask|pad")
PADDING = re.compile(r"pad")
LABEL = re.compile(r"^(y|labels?|targets?|class(es)?|classes|class_labels?|label_ids|categories|cond_labels?)$")
SIZES = re.compile(r"(image|target|orig(inal)?|spatial)_?(sizes?|shapes?)$")
PATCHES = 4
"""Patches a side of a picture."""
GRIDS = re.compile(r"(^|_)grid_?t?hws?$")
"""How many patches each picture has, in frames, rows and columns."""
TYPES = re.compile(r"type_ids$")
"""Kinds of token; the first kind always exists."""
LENGTHS = re.compile(r"len(gth)?s?$")
COUNTS = re.compile(r"^(n|num|nb|number_of)_\w+s$|(^|_)counts?$|s_per_[a-z]+$")
ATTENDED = re.compile(r"^(query|queries|keys?|values?|q|k|v)$")
"""What attention takes: sequences, because a token alone has nothing to choose from."""
FLAGS = re.compile(r"^(valid|is_\w+|has_\w+|dones?|terminated|present|observed|visible|keep|dropped|resets?)$")
BOXES = re.compile(r"^(b?box(es)?|anchors|proposals)$")
NUM_BOXES = 2
"""Boxes of a picture."""
POINTS = re.compile(
    r"^(points?|pts|xyz|coords?|coordinates|point_?clouds?|pc|vertices|rays?(_\w+)?|(view_?)?dir(ection)?s?)$"
)
SPACE = 3
"""Axes of the space that points lie in."""
EDGES = re.compile(r"edge_?index|^edges?$|adj_t")
EDGE_VALUES = re.compile(r"^edge_(attr|attrs|weights?|features?|feats?|values?|types?)$|^e_?feats?$")
GRAPH_IDS = re.compile(r"^(batch|batch_?(idx|index|ids?)|graph_(ids?|index))$")
OFFSETS = re.compile(r"(^|_)offsets?$")
ADJACENCY = re.compile(r"^adj|adjacency|^a$|graph")
STATE = re.compile(r"^(h|hx|h0|hidden|hidden_state|state|states|memory|carry|c0|prev_h)$")
SEQUENCE = re.compile(
    r"hidden_states|embeds|embeddings|sequence|encoder_out|context|memory|features|cond(itioning)?$|enc_out"
)


def usual(name: str, hints: Hints) -> Iterator[Guess]:
    """Yield what an input of that name usually is, best first; nothing where the name says nothing."""
    low = name.lower()
    if MASK.search(low):
        yield from _masks(low, hints)
        return
    yield from next((make(hints) for pattern, make in USUAL if pattern.search(low)), [])


def along_edges(guess: Guess) -> Guess:
    """Give one row to every edge of a graph instead of to every sample."""
    return replace(guess, shape=(NUM_EDGES, *guess.shape[1:]))


QUARTER = 4
"""How many times fewer labels are tried."""
NUM_EDGES = TOKENS
"""Edges of a made-up graph: two a node where eight samples are the nodes, so that sums over neighbours stay small."""
BATCH_NODES = 2
"""Node numbers that exist in a graph of any batch size the search uses."""


def is_single(name: str) -> bool:
    """Whether an input of that name is one number a sample, such as a timestep or a class."""
    return bool(TIME.search(name.lower()) or LABEL.search(name.lower()))


def is_one_a_sample(name: str) -> bool:
    """Whether an input of that name is a number a sample, whatever layer takes what is made of it."""
    return any(pattern.search(name.lower()) for pattern in (OFFSETS, TIME, LENGTHS, COUNTS))


def with_fewer_labels(candidate: Candidate) -> Candidate:
    """Give every sample a quarter as many labels, and say so where their number is an input as well."""
    long = {name for name, g in candidate if LABEL.search(name) and g.kind == "ids" and len(g.shape) > 1}
    long = {name for name in long if dict(candidate)[name].shape[1] >= QUARTER}
    counted = {n for n, _ in candidate if LENGTHS.search(n) and any(n.startswith(label.rstrip("s")) for label in long)}
    return tuple(
        (name, replace(g, shape=(g.shape[0], g.shape[1] // QUARTER, *g.shape[2:]))) if name in long
        else (name, replace(g, high=max(g.high // QUARTER, 1))) if name in counted
        else (name, g)
        for name, g in candidate
    )  # fmt: skip


def _masks(name: str, hints: Hints) -> Iterator[Guess]:
    if PADDING.search(name):  # it tells what to leave out
        yield Guess("bools", (BATCH, hints.tokens))
        yield Guess("blank", (BATCH, hints.tokens))
    yield Guess("mask", (BATCH, hints.tokens))
    yield Guess("trues", (BATCH, hints.tokens))
    yield Guess("bools", (BATCH, hints.tokens))
    yield Guess("bools", (hints.tokens, hints.tokens))
    yield Guess("causal", (hints.tokens, hints.tokens))
    yield Guess("mask", (BATCH, 1, 1, hints.tokens))
    yield Guess("mask", (BATCH, 1, hints.tokens, hints.tokens))
    yield Guess("constant", value=None)


OR_NONE = re.compile(r"\s*\|\s*none$|^(typing\.)?optional\[(\w+)\]$")
"""What says that an input may be left out, in its annotation."""


def annotated(name: str, annotation: str, inside: Sequence[Guess] = ()) -> Iterator[Guess]:
    """Yield what the annotation of an input settles; `inside` is what a list of tensors may hold."""
    name, annotation = name.lower(), OR_NONE.sub(r"\2", annotation.lower())
    if re.fullmatch(r"(builtins\.)?int", annotation):
        yield Guess("constant", value=3 if "step" in name or "n_" in name or "num" in name else 1)
    elif re.fullmatch(r"(builtins\.)?float", annotation):
        yield Guess("constant", value=0.5)
    elif re.fullmatch(r"(builtins\.)?bool", annotation):
        yield Guess("constant", value=False)
    elif re.search(r"(list|sequence|iterable)\[.*tensor", annotation):
        for guess in inside:
            yield replace(guess, kind="id_list" if guess.kind == "ids" else "list")
        yield Guess("list", (BATCH, DEFAULT_CHANNELS, 64, 64))


def _flags(hints: Hints) -> list[Guess]:
    return [Guess("trues", (BATCH, hints.tokens)), Guess("bools", (BATCH,)), Guess("bools", (BATCH, hints.tokens))]


def _times(hints: Hints) -> list[Guess]:
    ids = Guess("ids", (BATCH,), high=min(1000, hints.vocab or 1000))
    return [ids, Guess("unit", (BATCH,)), Guess("unit", (BATCH, 1))]


def _labels(hints: Hints) -> list[Guess]:
    each = Guess("ids", (BATCH, hints.tokens), high=max(hints.classes, hints.vocab, 2))
    return [Guess("ids", (BATCH,), high=max(hints.classes, 2)), each]


def _sizes(hints: Hints) -> list[Guess]:
    return [Guess("rows", (BATCH,), value=(side, side)) for side in (hints.side or SIDES[0], PATCHES)]


def _edge_values(hints: Hints) -> list[Guess]:
    return [Guess("unit", (NUM_EDGES,)), Guess("float", (NUM_EDGES, hints.width or TOKENS))]


def _states(hints: Hints) -> list[Guess]:
    return [Guess("float", (BATCH, hints.width))] if hints.width else []


def _sequences(hints: Hints) -> list[Guess]:
    return [Guess("float", (BATCH, hints.tokens, hints.width))] if hints.width else []


USUAL: tuple[tuple[re.Pattern[str], Callable[[Hints], list[Guess]]], ...] = (
    (EDGES, lambda h: [Guess("edges", (2, NUM_EDGES)), Guess("ids", (2, NUM_EDGES), high=BATCH_NODES)]),
    (EDGE_VALUES, _edge_values),
    (GRAPH_IDS, lambda h: [Guess("groups", (BATCH,)), Guess("ids", (BATCH,), high=BATCH_NODES)]),
    (OFFSETS, lambda h: [Guess("starts", (BATCH,))]),
    (TIME, _times),
    (LABEL, _labels),
    (TYPES, lambda h: [Guess("ids", (BATCH, h.tokens), high=1)]),
    (SIZES, _sizes),
    (re.compile(r"grid_?thws?$"), lambda h: [Guess("rows", (BATCH,), value=(1, PATCHES, PATCHES))]),
    (GRIDS, lambda h: [Guess("rows", (BATCH,), value=(PATCHES, PATCHES))]),
    (LENGTHS, lambda h: [Guess("lengths", (BATCH,), high=h.tokens)]),
    (COUNTS, lambda h: [Guess("lengths", (BATCH,), high=h.tokens)]),
    (FLAGS, _flags),
    (BOXES, lambda h: [Guess("unit", (BATCH, NUM_BOXES, 4)), Guess("unit", (BATCH, 4))]),
    (POINTS, lambda h: [Guess("float", (BATCH, h.tokens, SPACE)), Guess("float", (BATCH, SPACE))]),
    (PICTURE, lambda h: [pictures(2, h.channels or DEFAULT_CHANNELS, h.side or SIDES[0])]),
    (IDS, lambda h: [Guess("ids", (BATCH, h.tokens), high=h.vocab)] if h.vocab else []),
    (ADJACENCY, lambda h: [Guess("unit", (BATCH, BATCH)), Guess("unit", (BATCH, TOKENS, TOKENS))]),
    (STATE, _states),
    (ATTENDED, _sequences),
    (SEQUENCE, _sequences),
)
"""What inputs usually are, by the first pattern that is found in their names."""
