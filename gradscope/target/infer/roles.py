"""What an input of a given name and annotation usually is.

Names are conventions of the field (input_ids, timesteps, mask); structure and errors overrule them during the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gradscope.target.infer.guess import BATCH, Guess
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
        documented: Inputs whose shape it documents, by name.
    """

    vocab: int
    width: int
    length: int
    channels: int
    side: int
    classes: int
    documented: Mapping[str, Guess] = field(default_factory=dict)

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
LABEL = re.compile(r"^(y|labels?|targets?|class(es)?|classes|class_labels?|label_ids|categories|cond_labels?)$")
SIZES = re.compile(r"(image|target|orig(inal)?|spatial)_?(sizes?|shapes?)$")
PATCHES = 4
"""Patches a side of a picture."""
TYPES = re.compile(r"type_ids$")
"""Kinds of token; the first kind always exists."""
LENGTHS = re.compile(r"len(gth)?s?$")
EDGES = re.compile(r"edge_?index|^edges?$|adj_t")
ADJACENCY = re.compile(r"^adj|adjacency|^a$|graph")
STATE = re.compile(r"^(h|hx|h0|hidden|hidden_state|state|states|memory|carry|c0|prev_h)$")
SEQUENCE = re.compile(
    r"hidden_states|embeds|embeddings|sequence|encoder_out|context|memory|features|cond(itioning)?$|enc_out"
)


def usual(name: str, hints: Hints) -> Iterator[Guess]:
    """Yield what an input of that name usually is, best first; nothing where the name says nothing."""
    low = name.lower()
    if EDGES.search(low):
        yield Guess("ids", (2, 4 * TOKENS), high=BATCH_NODES)
    elif MASK.search(low):
        yield from _masks(hints)
    elif TIME.search(low):
        yield Guess("ids", (BATCH,), high=min(1000, hints.vocab or 1000))
        yield Guess("unit", (BATCH,))
        yield Guess("unit", (BATCH, 1))
    elif LABEL.search(low):
        yield Guess("ids", (BATCH,), high=max(hints.classes, 2))
        yield Guess("ids", (BATCH, hints.tokens), high=max(hints.classes, hints.vocab, 2))
    elif TYPES.search(low):
        yield Guess("ids", (BATCH, hints.tokens), high=1)
    elif SIZES.search(low):
        yield Guess("rows", (BATCH,), value=(hints.side or SIDES[0],) * 2)
        yield Guess("rows", (BATCH,), value=(PATCHES, PATCHES))
    elif LENGTHS.search(low):
        yield Guess("lengths", (BATCH,), high=hints.tokens)
    elif PICTURE.search(low):
        yield pictures(2, hints.channels or DEFAULT_CHANNELS, hints.side or SIDES[0])
    elif IDS.search(low) and hints.vocab:
        yield Guess("ids", (BATCH, hints.tokens), high=hints.vocab)
    elif ADJACENCY.search(low):
        yield Guess("unit", (BATCH, BATCH))
        yield Guess("unit", (BATCH, TOKENS, TOKENS))
    elif STATE.search(low) and hints.width:
        yield Guess("float", (BATCH, hints.width))
    elif SEQUENCE.search(low) and hints.width:
        yield Guess("float", (BATCH, hints.tokens, hints.width))


BATCH_NODES = 2
"""Node numbers that exist in a graph of any batch size the search uses."""


def is_single(name: str) -> bool:
    """Whether an input of that name is one number a sample, such as a timestep or a class."""
    return bool(TIME.search(name.lower()) or LABEL.search(name.lower()))


def _masks(hints: Hints) -> Iterator[Guess]:
    yield Guess("mask", (BATCH, hints.tokens))
    yield Guess("trues", (BATCH, hints.tokens))
    yield Guess("bools", (BATCH, hints.tokens))
    yield Guess("bools", (hints.tokens, hints.tokens))
    yield Guess("causal", (hints.tokens, hints.tokens))
    yield Guess("mask", (BATCH, 1, 1, hints.tokens))
    yield Guess("mask", (BATCH, 1, hints.tokens, hints.tokens))
    yield Guess("constant", value=None)


def annotated(name: str, annotation: str) -> Iterator[Guess]:
    """Yield what the annotation of an input settles."""
    name, annotation = name.lower(), annotation.lower()
    if re.fullmatch(r"(builtins\.)?int", annotation):
        yield Guess("constant", value=3 if "step" in name or "n_" in name or "num" in name else 1)
    elif re.fullmatch(r"(builtins\.)?float", annotation):
        yield Guess("constant", value=0.5)
    elif re.fullmatch(r"(builtins\.)?bool", annotation):
        yield Guess("constant", value=False)
    elif "list[" in annotation and "tensor" in annotation:
        yield Guess("list", (BATCH, DEFAULT_CHANNELS, 64, 64))
