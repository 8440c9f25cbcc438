"""The networks: built-in variants over wirings, initialisations, depths, widths and number formats.

Each network belongs to a family and has a depth. The half on which thresholds are fitted and the half on which they are
judged differ in depth within every family (every other depth), and in wiring: see ``Network.half``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradscope.target.subject import Subject
from gradscope.variants import subject

TRANSFORMER = {"d_model": 32, "tokens": 12, "vocab": 16, "batch": 32, "position_std": 1.0}
RECURRENT = {"d_model": 32, "vocab": 16}
CONVOLUTIONAL = {"width": 8, "image": 16, "stem": "cifar"}


@dataclass(frozen=True)
class Network:
    """One network of the calibration.

    Attributes:
        family: mlp, convolutional, recurrent or transformer.
        variant: The built-in variant.
        depth: Layers, blocks or time steps: what grows within the family.
        arguments: All arguments of the variant.
        dtype: Number format of parameters and activations.
        seed: Of the initial weights; 1 for the fresh networks.
    """

    family: str
    variant: str
    depth: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    seed: int = 0

    @property
    def name(self) -> str:
        """A name that says all of it, and is a valid file name."""
        parts = [f"{key}={value}" for key, value in sorted(self.arguments.items()) if DEFAULTS.get(key) != value]
        kind = [] if self.dtype == "float32" else [self.dtype]
        return ",".join([self.variant, *parts, *kind, *([f"seed={self.seed}"] if self.seed else [])])

    @property
    def half(self) -> str:
        """Fit or judge, by family and depth: every other depth of a family is held out. Fresh: never looked at."""
        if self.seed:
            return "fresh"
        depths = DEPTHS[self.family]
        return "fit" if depths.index(self.depth) % 2 == 0 else "judge"

    def subject(self) -> Subject:
        """Build the network with its task."""
        return subject(self.variant, dict(self.arguments), seed=self.seed)


DEFAULTS: dict[str, Any] = {**TRANSFORMER, **CONVOLUTIONAL}

DEPTHS: dict[str, tuple[int, ...]] = {
    "mlp": (4, 8, 16, 24, 40, 64),
    "transformer": (2, 4, 6, 9, 12, 18),
    "convolutional": (8, 18, 20, 34, 50),
    "recurrent": (6, 12, 24, 48),
}
"""The depths of each family; even positions are fitted on, odd ones held out."""


def networks() -> list[Network]:
    """List every network, in an order that mixes families and depths."""
    found = [*_mlps(), *_transformers(), *_convolutional(), *_recurrent()]
    names = [network.name for network in found]
    assert len(set(names)) == len(names), [name for name in names if names.count(name) > 1]
    # A fixed shuffle, so that any part of the list is a fair sample.
    return sorted(found, key=lambda network: _scatter(network.name))


FRESH_DEPTHS = {"mlp": (12, 32), "transformer": (5,)}


def fresh_networks() -> list[Network]:
    """List networks of other depths and another seed, made after the rules were final: a blind test of the verdict."""
    found = [
        Network("mlp", variant, depth, {**arguments, "layers": depth}, seed=1)
        for depth in FRESH_DEPTHS["mlp"]
        for variant, arguments in _MLPS
    ]
    for depth in FRESH_DEPTHS["transformer"]:
        sizes = {**TRANSFORMER, "layers": depth}
        for number, wiring in enumerate(_WIRINGS):
            found.append(Network("transformer", wiring, depth, {**sizes, "init": _SCHEMES[number % 3]}, seed=1))
        found += [Network("transformer", wiring, depth, sizes, seed=1) for wiring in _FIXED]
    return sorted(found, key=lambda network: _scatter(network.name))


def _scatter(name: str) -> int:
    value = 5381
    for letter in name:
        value = (value * 33 + ord(letter)) % (1 << 32)
    return value * 2654435761 % (1 << 32)


_MLPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mlp-linear", {"weight_variance": 0.5}),
    ("mlp-linear", {}),
    ("mlp-linear", {"weight_variance": 1.5}),
    ("mlp-orthogonal", {}),
    ("mlp-orthogonal", {"activation": "tanh"}),
    ("mlp-orthogonal", {"activation": "relu"}),
    ("mlp-tanh", {}),
    ("mlp-tanh", {"weight_variance": 1.0}),
    ("mlp-tanh", {"weight_variance": 1.4, "bias_variance": 0.0}),
    ("mlp-tanh", {"weight_variance": 2.5}),
    ("mlp-tanh", {"weight_variance": 4.0}),
    ("mlp-tanh", {"weight_variance": 16.0}),
    ("mlp-sigmoid", {}),
    ("mlp-sigmoid", {"weight_variance": 16.0}),
    ("mlp-relu", {}),
    ("mlp-relu-he", {}),
    ("mlp-relu-he", {"init": "normal", "weight_variance": 1.0}),
    ("mlp-relu-he", {"init": "normal", "weight_variance": 3.0}),
    ("mlp-relu-he", {"activation": "gelu"}),
    ("mlp-relu-he", {"norm": "layer"}),
    ("mlp-relu-he", {"norm": "rms"}),
    ("mlp-batchnorm", {}),
    ("mlp-batchnorm", {"activation": "tanh"}),
    ("mlp-residual", {}),
    ("mlp-residual", {"init": "pytorch"}),
    ("mlp-residual", {"skip": "scaled"}),
    ("mlp-residual", {"skip": "rezero"}),
    ("mlp-residual", {"norm": "batch"}),
    ("mlp-pre-ln", {}),
    ("mlp-pre-ln", {"skip": "scaled"}),
)


def _mlps() -> Iterator[Network]:
    for depth in DEPTHS["mlp"]:
        for variant, arguments in _MLPS:
            yield Network("mlp", variant, depth, {**arguments, "layers": depth})
        if depth in (8, 24, 40):
            for variant, arguments in _MLPS[6:7] + _MLPS[14:16] + _MLPS[21:22] + _MLPS[23:24]:
                yield Network("mlp", variant, depth, {**arguments, "layers": depth, "d_model": 128})
    for depth in (8, 16):
        for variant in ("mlp-relu", "mlp-relu-he", "mlp-pre-ln"):
            for dtype in ("bfloat16", "float16"):
                yield Network("mlp", variant, depth, {"layers": depth}, dtype)


_SCHEMES = ("pytorch", "xavier", "he")
_WIRINGS = (
    "no-residual", "no-residual-no-norm", "no-residual-post-ln", "residual-no-norm", "post-ln", "pre-ln", "peri-ln",
    "output-norm", "mix-ln", "b2t", "pre-rms", "deepnorm-encoder", "lns", "depth-mup", "completep", "rezero",
    "layerscale", "zero-last", "sub-ln", "normformer", "parallel", "highway", "dyt",
)  # fmt: skip
"""Wirings that are crossed with initialisations; those that come with one of their own are used with it as well."""
_FIXED = ("gpt2", "llama", "bert", "fixup", "admin", "residual-dual", "hyper-connections")


def _transformers() -> Iterator[Network]:
    for depth in DEPTHS["transformer"]:
        for number, wiring in enumerate(_WIRINGS):
            # All three schemes at every depth would be too many networks to train: they take turns.
            turns = 2 if depth in (4, 6) else 1
            schemes = [_SCHEMES[(number + depth + turn) % 3] for turn in range(turns)]
            for scheme in schemes if depth < 18 or number % 4 == 0 else ():
                yield Network("transformer", wiring, depth, {**TRANSFORMER, "layers": depth, "init": scheme})
        if depth in (4, 6, 12):
            for wiring in _FIXED:
                yield Network("transformer", wiring, depth, {**TRANSFORMER, "layers": depth})
    for depth in (4, 6):
        for wiring in ("pre-ln", "post-ln", "no-residual"):
            yield Network("transformer", wiring, depth, {**TRANSFORMER, "layers": depth, "d_model": 64})
    for depth in (4, 6):
        yield Network("transformer", "pre-ln", depth, {**TRANSFORMER, "layers": depth}, "bfloat16")


def _convolutional() -> Iterator[Network]:
    for depth in (18, 34, 50):
        for shortcut in (True, False):
            for norm in ("batch", "group", "none"):
                arguments = {**CONVOLUTIONAL, "shortcut": shortcut, "norm": norm}
                yield Network("convolutional", f"resnet{depth}", depth, arguments)
        zero = {**CONVOLUTIONAL, "zero_gamma": True}
        yield Network("convolutional", f"resnet{depth}", depth, zero)
        yield Network("convolutional", f"resnet{depth}", depth, {**CONVOLUTIONAL, "pre_activation": True})
        plain = {**CONVOLUTIONAL, "shortcut": False, "norm": "none", "init": "pytorch"}
        yield Network("convolutional", f"resnet{depth}", depth, plain)
    for depth in (8, 20):
        for init in ("he", "pytorch", "xavier"):
            yield Network("convolutional", "article-resnet", depth, {"layers": depth, "init": init})


def _recurrent() -> Iterator[Network]:
    for tokens in DEPTHS["recurrent"]:
        for cell in ("lstm", "gru", "rnn"):
            for layers in (1, 2):
                yield Network("recurrent", cell, tokens, {**RECURRENT, "tokens": tokens, "layers": layers})
        yield Network("recurrent", "lstm", tokens, {**RECURRENT, "tokens": tokens, "forget_bias": 3.0})
