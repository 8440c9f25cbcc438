"""The third blind test: kinds of networks that neither the calibration nor its first two blind sets hold.

Each kind comes as it should be built and as it is often got wrong; whether it trains is measured, not assumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from torch import nn

from benchmarks.calibration import outsider_tasks as tasks
from benchmarks.calibration.outsider_fields import Cells, Graph, Look, Photo, Reader, Ushape
from benchmarks.calibration.outsider_vectors import Experts, Flow, Hyper, Neck, Normless, Stack, Tied, Twins, Waves
from benchmarks.calibration.strangers import Stranger
from gradscope.variants.tasks import Task, noisy_templates, permuted_previous_token, recalled_first_token

TOKENS, VOCAB, BATCH = 12, 16, 32
LN10 = math.log(10)
Make = Callable[[], nn.Module]


def outsiders() -> list[Stranger]:
    """List the networks of the third blind test."""
    found = [*_stacks(), *_kinds(), *_losses(), *_pictures(), *_graphs(), *_tokens(), *_sequences()]
    assert len({one.name for one in found}) == len(found)
    return found


def _one(
    family: str, label: str, depth: int, make: Make, task: Task, seed: int, *, guess: float = math.nan,
    best: float = 0.0, dtype: str = "float32",
) -> Stranger:  # fmt: skip
    return Stranger(family, f"3-{label}", depth, make, "pytorch", task, seed, dtype, "blind 3", guess, best)


def _stacks() -> Iterator[Stranger]:
    task = noisy_templates((48,), 10, 64)
    mixed = ("tanh", "sigmoid", "gelu", "selu")
    rows: tuple[tuple[str, int, dict[str, object]], ...] = (
        ("weight-norm", 8, {"acts": ["relu"], "wrap": "weight", "gain": 1.4}),
        ("weight-norm-small", 12, {"acts": ["relu"], "wrap": "weight", "gain": 0.1}),
        ("spectral", 5, {"acts": ["relu"], "wrap": "spectral"}),
        ("spectral", 22, {"acts": ["relu"], "wrap": "spectral"}),
        ("mixed", 8, {"acts": mixed}),
        ("mixed", 26, {"acts": mixed}),
        ("softmax-once", 4, {"acts": ["relu", "softmax", "relu", "relu"]}),
        ("softmax-each", 6, {"acts": ["softmax"]}),
        ("softmax-batch", 4, {"acts": ["relu", "softmax-batch"]}),
        ("bias-minus", 6, {"acts": ["relu"], "he": True, "bias": -12.0}),
        ("bias-plus", 6, {"acts": ["relu"], "he": True, "bias": 1.0}),
        ("huge-input", 6, {"acts": ["relu"], "scale": 1e4}),
        ("huge-input-normed", 6, {"acts": ["relu"], "he": True, "scale": 1e4, "norm": "layer"}),
        ("huge-input-tanh", 5, {"acts": ["tanh"], "scale": 1e3}),
        ("faint-input", 6, {"acts": ["relu"], "he": True, "scale": 1e-5}),
        ("faint-input-batch-norm", 6, {"acts": ["relu"], "he": True, "scale": 1e-3, "norm": "batch"}),
        ("faint-input-layer-norm", 6, {"acts": ["relu"], "he": True, "scale": 1e-6, "norm": "layer"}),
        ("frozen-half", 6, {"acts": ["gelu"], "he": True, "frozen": 3}),
        ("cut-early", 6, {"acts": ["gelu"], "he": True, "cut": 1}),
        ("cut-late-narrow", 14, {"acts": ["tanh"], "cut": 13}),
    )
    for number, (label, depth, options) in enumerate(rows):
        yield _one("mlp", label, depth, partial(Stack, depth, **options), task, 201 + number)  # type: ignore[arg-type]
    for dtype in ("float16", "bfloat16"):
        yield _one("mlp", dtype, 5, partial(Stack, 5, ["gelu"], he=True), task, 221, dtype=dtype)


def _kinds() -> Iterator[Stranger]:
    task = noisy_templates((48,), 10, 64)
    plain: tuple[tuple[str, int, Make], ...] = (
        ("fixup", 30, partial(Normless, 30, "fixup")), ("normless-he", 30, partial(Normless, 30, "he")),
        ("normless-faint", 20, partial(Normless, 20, "faint")),
        ("hyper", 5, partial(Hyper, 5, 1.4)), ("hyper-small", 9, partial(Hyper, 9, 0.2)),
        ("hyper-large", 9, partial(Hyper, 9, 6.0)),
        ("experts", 8, partial(Experts, 8, hard=False, skip=True)),
        ("experts-hard", 6, partial(Experts, 6, hard=True, skip=True, sharp=3.0)),
        ("experts-bare", 14, partial(Experts, 14, hard=False, skip=False)),
        ("experts-hard-bare", 9, partial(Experts, 9, hard=True, skip=False)),
        ("tied", 10, partial(Tied, 10, 0.7)), ("tied-chaotic", 40, partial(Tied, 40, 4.0)),
        ("tied-damped", 30, partial(Tied, 30, 0.9, damped=True)), ("tied-norm", 20, partial(Tied, 20, 1.5, norm=True)),
    )  # fmt: skip
    for number, (label, depth, make) in enumerate(plain):
        yield _one("mlp", label, depth, make, task, 231 + number)
    for number, (label, depth, w0, right) in enumerate((
        ("waves", 4, 8.0, True), ("waves-fast", 5, 30.0, False), ("waves-slow", 9, 0.3, False),
    )):  # fmt: skip
        waves = partial(Waves, depth, w0, right=right)
        yield _one("mlp", label, depth, waves, tasks.heights(), 251 + number, guess=1.0)
    for number, (label, depth, bounded, gain) in enumerate((
        ("flow", 6, True, 1.0), ("flow-open", 8, False, 1.0), ("flow-open-large", 16, False, 8.0),
    )):  # fmt: skip
        flow = partial(Flow, depth, bounded=bounded, gain=gain)
        yield _one("mlp", label, depth, flow, tasks.density(), 255 + number, guess=1.0)
    for number, (label, depth, act, factor) in enumerate((
        ("twins", 3, "gelu", 10.0), ("twins-flat", 3, "gelu", 0.1), ("twins-sigmoid", 9, "sigmoid", 10.0),
    )):  # fmt: skip
        twins = partial(Twins, depth, act, factor)
        yield _one("mlp", label, depth, twins, tasks.pairs(), 261 + number, guess=math.log(32))
    for number, (label, depth, neck, act, squash) in enumerate((
        ("neck", 2, 8, "gelu", 1.0), ("neck-sigmoid", 7, 8, "sigmoid", 1.0), ("neck-squashed", 2, 8, "gelu", 1e-4),
    )):  # fmt: skip
        hourglass = partial(Neck, depth, neck, act, squash=squash)
        yield _one("mlp", label, 2 * depth + 1, hourglass, tasks.cleaned((48,), 64), 265 + number, guess=1.0)


def _losses() -> Iterator[Stranger]:
    body = partial(Stack, 4, ["gelu"], he=True)
    for number, (label, loss, guess, best) in enumerate((
        ("loss-one-hot", tasks.squared_one_hot, 1.0, 0.0),
        ("loss-squared-probs", tasks.squared_probabilities, 1.0, 0.0),
        ("loss-smoothed", tasks.smoothed, LN10, 0.50), ("loss-twice-softmax", tasks.twice_softmax, LN10, 1.461),
        ("loss-wrong-axis", tasks.softmax_over_samples, math.log(64), 1.86),
        ("loss-floor-tiny", tasks.floored(1e-8), LN10, 0.0), ("loss-floor-half", tasks.floored(0.5), math.log(2), 0.0),
        ("loss-faint", tasks.times(1e-9), LN10 * 1e-9, 0.0), ("loss-loud", tasks.times(300.0), LN10 * 300, 0.0),
        ("loss-sum", tasks.summed, LN10 * 64, 0.0), ("loss-averaged", tasks.averaged_first, LN10, 0.0),
        ("loss-relu-sigmoid", tasks.of_sigmoids, 0.693, 0.624),
    )):  # fmt: skip
        yield _one("mlp", label, 4, body, tasks.classes(loss), 271 + number, guess=guess, best=best)
    fields = partial(Waves, 4, 1.0, right=True)
    yield _one("mlp", "targets-large", 4, fields, tasks.heights(1e3), 285, guess=1e6)
    yield _one("mlp", "targets-shifted", 4, fields, tasks.heights(1.0, 300.0), 286, guess=1.0)


def _pictures() -> Iterator[Stranger]:
    clean = tasks.cleaned((3, 16, 16), 16)
    for number, (label, levels, convs, across, norm, act) in enumerate((
        ("unet", 2, 1, True, True, nn.ReLU), ("unet-bare", 3, 3, True, False, nn.ReLU),
        ("unet-closed", 3, 4, False, False, nn.Sigmoid), ("unet-no-across", 2, 2, False, True, nn.GELU),
    )):  # fmt: skip
        make = partial(Ushape, levels, convs, across=across, norm=norm, act=act)
        yield _one("convolutional", label, (2 * levels + 1) * convs, make, clean, 291 + number, guess=1.0)
    task = noisy_templates((3, 16, 16), 10, BATCH)
    for number, (label, depth, how, skip, start) in enumerate((
        ("layerscale", 10, "layerscale", True, 1e-6), ("skipinit", 16, "skipinit", True, 0.0),
        ("he-no-norm", 24, "none", True, 0.0), ("gates", 8, "gates", True, 0.0),
        ("gates-shut", 8, "gates", False, -6.0), ("gates-shut-skip", 8, "gates", True, -10.0),
    )):  # fmt: skip
        photo = partial(Photo, depth, how, skip=skip, start=start)
        yield _one("convolutional", label, depth, photo, task, 301 + number)


def _graphs() -> Iterator[Stranger]:
    task, links = tasks.communities()
    for number, (label, depth, how, skip) in enumerate((
        ("graph", 3, "mean", False), ("graph-deep", 24, "mean", False), ("graph-deep-skip", 16, "mean", True),
        ("graph-sum", 12, "sum", False), ("graph-sum-skip", 6, "sum", True), ("graph-attention", 3, "attention", True),
        ("graph-attention-bare", 14, "attention", False),
    )):  # fmt: skip
        yield _one("mlp", label, depth, partial(Graph, depth, how, links, skip=skip), task, 311 + number)


def _tokens() -> Iterator[Stranger]:
    task = permuted_previous_token(VOCAB, TOKENS, BATCH)
    scale = 40**-0.5
    rows: tuple[tuple[str, int, str, float, dict[str, float], dict[str, bool]], ...] = (
        ("cosine", 4, "cosine", 10.0, {}, {}), ("cosine-flat", 5, "cosine", 0.05, {}, {}),
        ("distance", 4, "distance", 1.0, {}, {}), ("loud-scores", 5, "dot", 40 * scale, {}, {}),
        ("deaf-scores", 4, "blind", scale, {}, {}), ("over-queries", 4, "queries", scale, {}, {}),
        ("over-batch", 4, "batch", scale, {}, {}), ("experts", 3, "dot", scale, {}, {"experts": True}),
        ("linear-norm", 4, "linear", 1 / 40, {}, {}), ("linear-bare", 9, "linear", 1.0, {}, {"norm": False}),
        ("enter-faint", 4, "dot", scale, {"enter": 1e-5}, {}), ("enter-loud", 4, "dot", scale, {"enter": 300.0}, {}),
        ("leave-faint", 4, "dot", scale, {"leave": 1e-4}, {}), ("leave-loud", 4, "dot", scale, {"leave": 300.0}, {}),
        ("cap", 4, "dot", scale, {"cap": 30.0}, {}), ("cap-low", 4, "dot", scale, {"cap": 0.05}, {}),
        ("halved", 24, "dot", scale, {"halved": True}, {}),
    )  # fmt: skip
    for number, (label, depth, how, factor, around, inside) in enumerate(rows):
        make = partial(_read, depth, how, factor, around, inside)
        yield _one("transformer", label, depth, make, task, 321 + number)


def _read(depth: int, how: str, factor: float, around: dict[str, float], inside: dict[str, bool]) -> nn.Module:
    return Reader([Look(how, factor, **inside) for _ in range(depth)], **around)  # type: ignore[arg-type]


def _sequences() -> Iterator[Stranger]:
    for number, (label, kind, layers, bias, size, tokens) in enumerate((
        ("lstm-remembering", "LSTM", 1, 2.0, 1.0, 20), ("lstm-forgetful", "LSTM", 1, -6.0, 1.0, 20),
        ("gru-remembering", "GRU", 2, 2.0, 1.0, 16), ("gru-forgetful", "GRU", 2, -7.0, 1.0, 24),
        ("lstm-stack", "LSTM", 3, 1.0, 1.0, 8), ("rnn-loud", "RNN", 2, 0.0, 4.0, 24),
        ("rnn-faint", "RNN", 1, 0.0, 0.05, 16),
    )):  # fmt: skip
        task = recalled_first_token(VOCAB, tokens, BATCH)
        yield _one("recurrent", label, tokens, partial(Cells, kind, layers, bias, size=size), task, 341 + number)
