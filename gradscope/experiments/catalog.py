"""The list of experiments, torch-free."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from gradscope.errors import TargetError


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        name: How it is asked for: ``gradscope experiment NAME``.
        title: What it is about.
        question: The question it answers.
        module: Where its ``run(quick, progress)`` is.
        minutes: How long it takes on one core.
        quick_seconds: How long its short form takes on one core.
    """

    name: str
    title: str
    question: str
    module: str
    minutes: float
    quick_seconds: float


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "residual",
        "A ten-layer Transformer with and without residual connections",
        "Do gradients vanish or explode without skips, does the loss converge, and from which depth?",
        "gradscope.experiments.residual",
        1.2,
        15.0,
    ),
    Experiment(
        "placement",
        "Where the norm stands: Post-LN against Pre-LN",
        "Do gradients explode, how large may the learning rate be, is warmup needed?",
        "gradscope.experiments.placement",
        2.5,
        16.0,
    ),
    Experiment(
        "xiong",
        "The laws of Xiong 2020 in the paper's own setting",
        "How does the last layer's gradient depend on depth and width, and how large does the stream become?",
        "gradscope.experiments.xiong_laws",
        0.2,
        8.0,
    ),
    Experiment(
        "depth",
        "Residual networks of 18 to 152 layers with and without shortcuts",
        "Which depths keep their gradient, and what goes wrong in the others?",
        "gradscope.experiments.depth",
        1.8,
        10.0,
    ),
    Experiment(
        "norm-axis",
        "BatchNorm against LayerNorm: the axis of the statistics",
        "What do batch size, training and evaluation change, and what does either do to the gradient?",
        "gradscope.experiments.norm_axis",
        0.1,
        5.0,
    ),
    Experiment(
        "layernorm",
        "LayerNorm, worked by hand",
        "Is the printed example right, is the printed code, and what reaches its two parameters?",
        "gradscope.experiments.layernorm",
        0.1,
        3.0,
    ),
    Experiment(
        "init",
        "How branches start: zero, ReZero, DeepNorm, 1/sqrt(L)",
        "Which initialisations keep the gradient as it is, and at what price?",
        "gradscope.experiments.initialisation",
        1,
        14.0,
    ),
    Experiment(
        "precision",
        "Low precision in the residual stream and in the norm",
        "What do bfloat16 and float16 lose in additions and statistics?",
        "gradscope.experiments.precision",
        0.1,
        5.0,
    ),
    Experiment(
        "norm-cost",
        "LayerNorm against RMSNorm: what dropping the mean saves",
        "Is RMSNorm faster here, and what does it do differently?",
        "gradscope.experiments.norm_cost",
        0.1,
        5.0,
    ),
    Experiment(
        "paths",
        "Two to the n paths, and where the gradient's energy is",
        "Is the identity a floor under the gradient, and how long are the paths that matter?",
        "gradscope.experiments.paths",
        0.1,
        8.0,
    ),
    Experiment(
        "collapse",
        "How alike tokens become, layer by layer",
        "Which wirings keep tokens apart, and what happens to queries and keys in the others?",
        "gradscope.experiments.collapse",
        0.2,
        8.0,
    ),
    Experiment(
        "hooks",
        "The monitoring code that tutorials print",
        "Does register_full_backward_hook on every nn.Linear see what it should?",
        "gradscope.experiments.hooks",
        0.1,
        3.0,
    ),
)


def find(name: str) -> Experiment:
    """Look up an experiment; hyphens and underscores are the same.

    Raises:
        TargetError: There is none of that name; the message gives the nearest.
    """
    written = name.strip().lower().replace("_", "-")
    by_name = {experiment.name: experiment for experiment in EXPERIMENTS}
    if written in by_name:
        return by_name[written]
    close = difflib.get_close_matches(written, by_name, n=1, cutoff=0.5)
    meant = f"; did you mean '{close[0]}'?" if close else "."
    raise TargetError(
        f"there is no experiment '{name}'{meant}",
        rule=f"There are {', '.join(by_name)}.",
        hint=f"gradscope experiment {close[0] if close else EXPERIMENTS[0].name}",
    )
