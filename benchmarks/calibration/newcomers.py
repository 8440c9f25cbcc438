"""The second blind test: written after the first had been judged and its lessons learnt, and judged once itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.calibration.newcomer_models import Chain, Joined, Memory, Mix, Passes, Pyramid
from benchmarks.calibration.strangers import Stranger
from gradscope.variants.tasks import noisy_templates, permuted_previous_token, recalled_first_token

WIDTH, TOKENS, VOCAB, BATCH = 40, 12, 16, 32
INITS = ("pytorch", "he", "lecun", "xavier", "orthogonal", "large")


def newcomers() -> list[Stranger]:
    """List the networks of the second blind test."""
    found = [*_vectors(), *_pictures(), *_tokens(), *_sequences()]
    assert len({one.name for one in found}) == len(found)
    return found


def _one(family: str, label: str, depth: int, make: object, init: str, task: object, seed: int) -> Stranger:
    return Stranger(family, f"2-{label}", depth, make, init, task, seed, half="blind 2")  # type: ignore[arg-type]


def _vectors() -> Iterator[Stranger]:
    task = noisy_templates((48,), 10, 64)
    names = ("relu6", "celu", "hardswish", "logsigmoid", "sine", "squared-relu", "arctan", "softshrink")
    for number, name in enumerate(names):
        for depth in ((9, 22), (13, 40))[number % 2]:
            init = INITS[(number + depth) % len(INITS)]
            yield _one("mlp", name, depth, partial(Chain, depth, name), init, task, 101 + number)
    for number, name in enumerate(("relu6", "sine", "arctan")):
        yield _one("mlp", f"{name}-rms", 26, partial(Chain, 26, name, True), INITS[number], task, 111 + number)
    for number, how in enumerate(("concat", "variance-kept", "every-third", "post-norm", "doubled", "strong-pre-norm")):
        for depth in (11, 30):
            init = INITS[(number + depth) % 4]
            yield _one("mlp", how, depth, partial(Joined, depth, how), init, task, 121 + number)


def _pictures() -> Iterator[Stranger]:
    task = noisy_templates((3, 16, 16), 10, BATCH)
    for number, (kind, skip, norm, depth) in enumerate((
        ("grouped", True, True, 9), ("grouped", False, True, 9), ("grouped", False, False, 9),
        ("grouped", True, False, 16), ("squeezed", True, True, 12), ("squeezed", False, False, 5),
        ("squeezed", True, False, 12), ("squeezed", False, True, 14),
    )):  # fmt: skip
        label = f"{kind}{'-skip' if skip else ''}{'-norm' if norm else ''}"
        make = partial(Pyramid, depth, kind, skip, norm)
        yield _one("convolutional", label, depth, make, INITS[number % 3], task, 131 + number)


def _tokens() -> Iterator[Stranger]:
    task = permuted_previous_token(VOCAB, TOKENS, BATCH)
    places = ("before", "sandwich", "after", "post", "none")
    for number, how in enumerate(("linear", "convolution", "spatial-gate", "self-keyed")):
        for turn, place in enumerate(places):
            depth = (4, 7, 11, 15)[(number + turn) % 4]
            shared = (number + turn) % 5 == 4
            block = partial(Mix, TOKENS, WIDTH, how, place)
            make = partial(Passes, block, depth, shared, WIDTH, TOKENS, VOCAB)
            label = f"{how}-{place}{'-shared' if shared else ''}"
            yield _one("transformer", label, depth, make, INITS[(number + 2 * turn) % 4], task, 141 + number)


def _sequences() -> Iterator[Stranger]:
    for number, (rule, gain) in enumerate((("skip", 0.5), ("forget", 0.9), ("norm", 1.0), ("plain", 0.7))):
        for tokens in (10, 26):
            task = recalled_first_token(VOCAB, tokens, BATCH)
            yield _one("recurrent", rule, tokens, partial(Memory, rule, gain), "pytorch", task, 151 + number)
