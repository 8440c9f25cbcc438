"""Residual networks of 18 to 152 layers with and without shortcuts, and plain networks that train all the same."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gradscope.experiments.depth_claims import judge
from gradscope.experiments.result import Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.stations import decades_between, gradient_norms, norm, record_stream, total_decades
from gradscope.experiments.training import History, chance_loss, token_subject, train
from gradscope.target.subject import Subject
from gradscope.variants import build
from gradscope.variants import subject as make_subject

DEPTHS = (18, 34, 50, 101, 152)
Setting = tuple[int, bool]
"""Depth, and whether there are shortcuts."""

RESNET_LR = 3e-3
"""Adam's learning rate for the residual networks: of 1e-3 and 3e-3 the one at which deep ones learn faster."""

PLAIN = (
    ("mlp-relu", 24, "ReLU, PyTorch's initialisation"),
    ("mlp-relu-he", 24, "ReLU, He initialisation"),
    ("mlp-tanh", 24, "tanh at criticality"),
    ("mlp-orthogonal-tanh", 64, "tanh, orthogonal"),
)
"""Networks without any skip: what is trained, layers, in words."""


@dataclass(frozen=True)
class Findings:
    """Everything the experiment measured.

    Attributes:
        decades: D by depth and shortcut.
        decades_without_norm: The same without BatchNorm or shortcuts.
        largest: Largest gradient norm of a convolution.
        trained: Training runs of residual networks, with their loss at the start.
        plain: Training runs of plain networks.
        block_decades: D per printed block by initialisation.
        branch_minimum: Smallest value the printed block's branch adds.
        printed_norms: Normalisation layers in the printed block's branch.
        linear_decades: D of 24 fully connected ReLU layers without and with skips, PyTorch's initialisation.
        skipless_loss_share: Final loss over chance of a Transformer without skips.
    """

    decades: dict[Setting, float]
    decades_without_norm: dict[int, float]
    largest: dict[Setting, float]
    trained: dict[Setting, History]
    plain: dict[str, History]
    block_decades: dict[str, float]
    branch_minimum: float
    printed_norms: int
    linear_decades: tuple[float, float]
    skipless_loss_share: float


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Measure every depth before training, then train some."""
    seeds = 1 if quick else 3
    total = 4
    progress("18 to 152 layers before training", 0, total)
    decades, largest = _untrained(seeds)
    without_norm = {depth: total_decades(_network(depth, False, 0, norm="none")) for depth in (18, 34, 50)}
    progress("the printed block", 1, total)
    blocks = {
        init: statistics.fmean(
            total_decades(make_subject("article-resnet", {"init": init}, seed)) / BLOCKS for seed in range(seeds)
        )
        for init in ("he", "pytorch")
    }
    progress("training residual networks", 2, total)
    trained = _train_networks((18, 34) if quick else DEPTHS, 90 if quick else 300)
    progress("training plain networks", 3, total)
    plain = {words: _train_plain(name, layers, 100 if quick else 300) for name, layers, words in PLAIN}
    linear = (total_decades(_layers(skip="none")), total_decades(_layers(skip="identity")))
    skipless = _skipless_loss_share(60 if quick else 200)
    progress("done", total, total)
    found = Findings(
        decades, without_norm, largest, trained, plain, blocks, _branch_minimum(), _printed_norms(), linear, skipless
    )
    return _tables(found), judge(found), _notes(seeds)


BLOCKS = 32
"""Printed blocks in a stack (article-resnet's default)."""


def _network(depth: int, shortcut: bool, seed: int, **more: object):  # type: ignore[no-untyped-def]
    return make_subject(f"resnet{depth}", {"shortcut": shortcut, **more}, seed)


def _untrained(seeds: int) -> tuple[dict[Setting, float], dict[Setting, float]]:
    decades, largest = {}, {}
    for depth in DEPTHS:
        for shortcut in (False, True):
            values, peaks = [], []
            for seed in range(seeds):
                subject = _network(depth, shortcut, seed)
                stream, _ = record_stream(subject, next(iter(subject.batches)))
                norms = gradient_norms(stream)
                values.append(decades_between(norms[0], norms[-1]))
                peaks.append(max(norm(p.grad) for p in subject.model.parameters() if p.ndim == 4))  # noqa: PLR2004
            decades[depth, shortcut], largest[depth, shortcut] = statistics.fmean(values), max(peaks)
    return decades, largest


def _train_networks(depths: Sequence[int], num_steps: int) -> dict[Setting, History]:
    found = {}
    for depth in depths:
        for shortcut in (False, True):
            subject = _network(depth, shortcut, 0, width=8, batch=16)
            found[depth, shortcut] = train(subject, num_steps, RESNET_LR)
    return found


def _train_plain(name: str, layers: int, num_steps: int) -> History:
    arguments: dict[str, object] = {"layers": layers}
    if name == "mlp-orthogonal-tanh":
        name, arguments = "mlp-orthogonal", {"layers": layers, "activation": "tanh"}
    return train(make_subject(name, arguments, 0), num_steps, 1e-3)


def _layers(skip: str) -> Subject:
    return make_subject("mlp-relu", {"layers": 24, "skip": skip}, 0)


SKIPLESS_VOCAB = 16
"""Token ids of the Transformer without skips."""


def _skipless_loss_share(num_steps: int) -> float:
    subject = token_subject("no-residual", 0, layers=12, d_model=32, batch=16, vocab=SKIPLESS_VOCAB)
    return train(subject, num_steps, 1e-3).final_loss / chance_loss(SKIPLESS_VOCAB)


def _printed_norms() -> int:
    """Count the normalisation layers of the printed block, its shortcut's left out."""
    block = build("article-resnet", layers=1).get_submodule("blocks.0")
    branch = (module for name, module in block.named_modules() if "shortcut" not in name)
    return sum("norm" in type(module).__name__.lower() for module in branch)


@torch.no_grad()
def _branch_minimum() -> float:
    """Smallest value that the printed block's branch adds to the skip: below 0 unless a ReLU precedes the addition."""
    torch.manual_seed(0)
    block = build("article-resnet", layers=1).get_submodule("blocks.0")
    x = torch.randn(8, 16, 8, 8)
    conv1, conv2 = block.get_submodule("conv1"), block.get_submodule("conv2")
    return float(conv2(torch.relu(conv1(x))).min())


def _tables(found: Findings) -> list[Table]:
    before = [
        (
            depth,
            found.decades[depth, False],
            found.decades[depth, True],
            found.largest[depth, False],
            found.largest[depth, True],
        )
        for depth in DEPTHS
    ]
    trained = [
        (depth, "with" if shortcut else "without", one.losses[0], one.final_loss)
        for (depth, shortcut), one in found.trained.items()
    ]
    plain = [(words, one.losses[0], one.final_loss) for words, one in found.plain.items()]
    blocks = [(init, decades) for init, decades in found.block_decades.items()]
    return [
        table(
            "Before training, BatchNorm, He initialisation",
            ("layers", "D without shortcuts", "D with", "largest gradient without", "largest gradient with"),
            before,
            "Positive D is growth toward the input: plain networks with BatchNorm explode, they do not vanish.",
        ),
        table(
            "Without shortcuts and without BatchNorm",
            ("layers", "D (decades)"),
            list(found.decades_without_norm.items()),
        ),
        table("Training", ("layers", "shortcuts", "loss at the start", "final loss"), trained),
        table("Plain fully connected networks, trained", ("network", "loss at the start", "final loss"), plain),
        table("The printed residual block", ("init", "D per block (decades)"), blocks, "0.1505 doubles the energy."),
    ]


def _notes(seeds: int) -> list[str]:
    return [
        f"A quarter of the paper's width, 32 x 32 noisy templates of 10 classes, {seeds} seeds before training.",
        f"Training: Adam, learning rate {RESNET_LR:g} for residual networks, an eighth of the paper's width, one seed; "
        "made-up images and a minute's training, not the paper's experiment.",
        "The paper itself trained plain networks of 18 and 34 layers on ImageNet, none of 50 and more.",
    ]
