"""The setting of Xiong 2020: one head, uniform attention, Xavier, d_ff = d, ReLU, and few tokens.

The theorem speaks of the gradient of one prediction; over many tokens, gradients of unlike tokens average out and
those of collapsed ones do not, which would add a slope of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from gradscope.experiments.power_law import exponent
from gradscope.experiments.stations import parameter_norms, record_stream
from gradscope.target.subject import Subject
from gradscope.variants import subject as make_subject

WIDTH = 64
VOCAB = 64


def paper_subject(name: str, layers: int, seed: int, width: int = WIDTH, vocab: int = VOCAB) -> Subject:
    """Make a network in the paper's setting."""
    arguments = {
        "layers": layers, "d_model": width, "heads": 1, "d_ff": width, "activation": "relu", "init": "xavier",
        "vocab": vocab, "position_std": 0.0, "batch": 4, "tokens": 8,
    }  # fmt: skip
    subject = make_subject(name, arguments, seed)
    for path, parameter in subject.model.named_parameters():
        if path.endswith((".q.weight", ".k.weight")):
            torch.nn.init.zeros_(parameter)
    return subject


def last_gradient(name: str, layers: int, seeds: int, width: int = WIDTH, vocab: int = VOCAB) -> float:
    """Mean gradient norm of the last feed-forward's second matrix."""
    norms = []
    for seed in range(seeds):
        subject = paper_subject(name, layers, seed, width, vocab)
        record_stream(subject, next(iter(subject.batches)))
        norms += parameter_norms(subject.model, f"blocks.{layers - 1}.mlp.branch.fc2.weight")
    return statistics.fmean(norms)


def size_exponent(gradients: dict[int, float]) -> float:
    """Return the exponent of the last gradient against depth or width.

    Theorem 1: against depth 0 for Post-LN and -1/2 for Pre-LN, against width 1 for both.

    Args:
        gradients: Norm of the gradient by depth (blocks) or width.
    """
    sizes: Sequence[int] = sorted(gradients)
    return exponent([float(size) for size in sizes], [gradients[size] for size in sizes])


@torch.no_grad()
def mean_square(name: str, layers: int, seeds: int) -> float:
    """Mean square of the stream at its end in Pre-LN, of the last sum before its norm in Post-LN (lemma 2)."""
    place = f"blocks.{layers - 1}" + (".mlp.norm_after" if name == "post-ln" else "")
    squares: list[float] = []
    for seed in range(seeds):
        subject = paper_subject(name, layers, seed)
        subject.model.get_submodule(place).register_forward_hook(
            lambda _module, inputs, output: squares.append(
                float((inputs[0] if name == "post-ln" else output).square().mean())
            )
        )
        subject.call(next(iter(subject.batches)))
    return statistics.fmean(squares)
