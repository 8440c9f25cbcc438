"""The registry of commands: what each is in one line, and where it is, without loading it."""

from __future__ import annotations

from dataclasses import dataclass

_LOOK, _LABORATORY, _LOOK_UP = "Look at a model", "The laboratory", "Look something up"


@dataclass(frozen=True)
class CommandEntry:
    """One command: module `gradscope.cli.NAME` has the function NAME, its HELP and its EXAMPLES.

    Attributes:
        name: What the user types.
        panel: Where the help page lists it.
        summary: The first sentence of its HELP.
    """

    name: str
    panel: str
    summary: str


COMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry(
        "inspect",
        _LOOK,
        "Find out whether gradients vanish or explode in a model, where, why, and what to change.",
    ),
    CommandEntry("check", _LOOK, "Fail when a model's gradient flow is broken: the gate for CI."),
    CommandEntry("run", _LOOK, "Watch an unmodified training script for its first optimizer steps."),
    CommandEntry("compare", _LOOK, "Compare models, saved runs or revisions side by side."),
    CommandEntry("suggest", _LOOK, "Try remedies on the model and rank them by what they measurably do."),
    CommandEntry("report", _LOOK, "Show a saved run again, in any format. Needs no torch."),
    CommandEntry(
        "experiment",
        _LABORATORY,
        "Run a classic experiment on skips and norms, and judge what is written about it.",
    ),
    CommandEntry(
        "sweep",
        _LABORATORY,
        "Measure a grid of models and fit how the gradient depends on depth, and where it will break.",
    ),
    CommandEntry(
        "explain",
        _LOOK_UP,
        "Explain a rule: what it measures, why it matters, when it is wrong, and what to do.",
    ),
    CommandEntry("rules", _LOOK_UP, "List all rules by family."),
    CommandEntry("variants", _LOOK_UP, "List the built-in models, each to be inspected as builtin:NAME."),
    CommandEntry(
        "doctor",
        _LOOK_UP,
        "Show versions and devices for a bug report. Names no host, user or folder.",
    ),
)
