"""The blind test: networks of wirings, widths, depths and seeds that neither levels nor rules have met.

They were written, trained and kept aside before the last change to the rules, and judged once after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from benchmarks.calibration.stranger_models import Attend, Bent, Mixer, Picture, Remember, Wired, Words, draw
from gradscope.target.subject import Origin, Subject
from gradscope.variants.tasks import Task, noisy_templates, permuted_previous_token, recalled_first_token

WIDTH, TOKENS, VOCAB, BATCH = 36, 10, 16, 32


@dataclass(frozen=True)
class Stranger:
    """One network of the blind test; the same interface as `Network`."""

    family: str
    label: str
    depth: int
    make: Callable[[], nn.Module]
    init: str
    task: Task
    seed: int
    dtype: str = "float32"
    half: str = "blind"
    guess: float = math.nan
    """Loss of a guess; NaN for that of equally likely classes."""
    best: float = 0.0
    """Lowest loss that can be reached."""

    @property
    def name(self) -> str:
        """A name that says all of it, and is a valid file name."""
        return f"blind-{self.family}-{self.label},layers={self.depth},init={self.init},seed={self.seed}"

    def subject(self) -> Subject:
        """Build the network with its task."""
        torch.manual_seed(self.seed)
        return Subject(
            model=draw(self.make(), self.init).train(),
            batches=self.task.batches,
            loss=self.task.loss,
            target=self.name,
            inputs_origin=Origin(self.task.batches_text),
            loss_origin=Origin(self.task.loss_text),
        )


def strangers() -> list[Stranger]:
    """List the networks of the blind test."""
    found = [*_plain(), *_residual(), *_pictures(), *_tokens(), *_recurrent()]
    assert len({stranger.name for stranger in found}) == len(found)
    return found


def _plain() -> Iterator[Stranger]:
    task = noisy_templates((40,), 10, 64)
    kinds = (
        ("silu", "pytorch"), ("silu", "he"), ("elu", "lecun"), ("leaky", "he"), ("leaky", "pytorch"),
        ("softplus", "lecun"), ("selu", "lecun"), ("hardtanh", "orthogonal"), ("hardtanh", "large"),
        ("softsign", "xavier"), ("mish", "small"), ("elu", "large"),
    )  # fmt: skip
    for number, (activation, init) in enumerate(kinds):
        for depth in (10, 28) if number % 2 else (6, 14, 48):
            yield Stranger("mlp", activation, depth, partial(Bent, depth, activation), init, task, 11 + number)
    for depth in (14, 36):
        yield Stranger("mlp", "normed-silu", depth, partial(Bent, depth, "silu", True), "he", task, 31)
        yield Stranger("mlp", "hourglass", depth, partial(Bent, depth, "leaky", False, 10), "he", task, 32)


def _residual() -> Iterator[Stranger]:
    task = noisy_templates((40,), 10, 64)
    for number, wiring in enumerate(("sum", "half", "relu-after", "strong", "attenuated", "glu")):
        for depth, norm in ((10, False), (24, number % 2 == 0)):
            label = wiring + ("-norm" if norm else "")
            init = ("he", "pytorch", "lecun")[(number + depth) % 3]
            yield Stranger("mlp", label, depth, partial(Wired, depth, wiring, norm), init, task, 41 + number)


def _pictures() -> Iterator[Stranger]:
    task = noisy_templates((3, 16, 16), 10, BATCH)
    for kind, norm, depths, init in (
        ("plain", "none", (6, 16), "pytorch"), ("plain", "instance", (6, 16), "he"), ("plain", "none", (10,), "he"),
        ("separable", "group", (8,), "he"), ("separable", "none", (8, 20), "pytorch"), ("dense", "group", (8,), "he"),
    ):  # fmt: skip
        for depth in depths:
            make = partial(Picture, depth, kind, norm)
            yield Stranger("convolutional", f"{kind}-{norm}", depth, make, init, task, 51)


def _words(blocks: Callable[[], nn.Module], depth: int, final_norm: bool) -> nn.Module:
    return Words([blocks() for _ in range(depth)], WIDTH, TOKENS, VOCAB, final_norm)


def _tokens() -> Iterator[Stranger]:
    task = permuted_previous_token(VOCAB, TOKENS, BATCH)
    layer = partial(nn.TransformerEncoderLayer, WIDTH, 4, 72, 0.0, batch_first=True)
    blocks: tuple[tuple[str, Callable[[], nn.Module], bool, tuple[int, ...], str], ...] = (
        ("mixer", lambda: Mixer(TOKENS, WIDTH, True, True), True, (3, 10), "pytorch"),
        ("mixer-plain", lambda: Mixer(TOKENS, WIDTH, False, True), True, (3, 8), "pytorch"),
        ("mixer-bare", lambda: Mixer(TOKENS, WIDTH, True, False), False, (7, 14), "he"),
        ("unscaled", lambda: Attend(WIDTH, WIDTH**0.5, 1.0, "pre", False), True, (5, 10), "pytorch"),
        ("louder", lambda: Attend(WIDTH, 1.0, 3.0, "post", False), False, (5, 14), "xavier"),
        ("quiet", lambda: Attend(WIDTH, 1.0, 0.2, "post", False), False, (8, 14), "xavier"),
        ("normless", lambda: Attend(WIDTH, 1.0, 1.0, "none", False), False, (5, 10), "lecun"),
        ("gated", lambda: Attend(WIDTH, 1.0, 1.0, "pre", True), True, (5, 10, 16), "pytorch"),
        ("torch-post", partial(layer, norm_first=False), False, (5, 14), "pytorch"),
        ("torch-pre", partial(layer, norm_first=True), True, (5, 14), "small"),
    )  # fmt: skip
    for number, (label, block, norm, depths, init) in enumerate(blocks):
        for depth in depths:
            yield Stranger("transformer", label, depth, partial(_words, block, depth, norm), init, task, 61 + number)


def _recurrent() -> Iterator[Stranger]:
    for number, (rule, gain) in enumerate((("tanh", 1.0), ("tanh", 0.4), ("tanh", 3.0), ("relu", 1.0), ("leaky", 1.0),
                                           ("gated", 0.0))):  # fmt: skip
        for tokens in (8, 30):
            task = recalled_first_token(VOCAB, tokens, BATCH)
            label = f"{rule}{gain:g}"
            yield Stranger("recurrent", label, tokens, partial(Remember, rule, gain), "pytorch", task, 81 + number)
