"""How branches start: zero, ReZero, DeepNorm, 1/sqrt(L), and what each does to gradient and training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gradscope.experiments.result import Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import HISTORY
from gradscope.experiments.stations import norm, record_stream, total_decades
from gradscope.experiments.training import History, token_subject, train
from gradscope.target.subject import Subject
from gradscope.variants import subject as make_subject
from gradscope.variants.depth_scales import deepnorm_single

DESIGNS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("pre-ln", "Pre-LN", {"init": "xavier"}),
    ("post-ln", "Post-LN", {}),
    ("article", "Pre-LN, feed-forward's last weight zero as printed", {"init": "pytorch"}),
    ("zero-last", "Pre-LN, last weights and biases zero", {}),
    ("rezero", "ReZero", {}),
    ("skipinit", "SkipInit", {}),
    ("layerscale", "LayerScale", {"init": "xavier"}),
    ("deepnorm-encoder", "DeepNorm", {}),
    ("depth-mup", "1/sqrt(2L)", {}),
    ("gpt2", "GPT-2's scaled last weights", {"structure": "encoder"}),
    ("fixup", "Fixup", {}),
    ("residual-no-norm", "no norm, no scaling", {}),
)
FLAT_DECADES = 0.005
"""|D| below which the gradient is the same at both ends, to two digits."""
LEARNT = 1.0
"""Loss in nats below which the task counts as learnt when steps are counted."""


@dataclass(frozen=True)
class Findings:
    """Everything the experiment measured."""

    decades: dict[tuple[str, int], float]
    silent: dict[str, float]
    histories: dict[str, History]
    printed_rms: float
    variance_growth: dict[str, float]
    literal_growth: float
    normed_decades: float
    literal_layers: int


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Measure each design before training, then train four of them."""
    depths = (10, 48) if quick else (10, 24, 48)
    seeds = 1 if quick else 3
    progress("before training", 0, 3)
    decades = {
        (design, layers): statistics.fmean(total_decades(make(design, layers, seed)) for seed in range(seeds))
        for design, _, _ in DESIGNS
        for layers in depths
        if design != "fixup"
    }
    silent = {design: _silent_share(design) for design, _, _ in DESIGNS}
    progress("the formulas", 1, 3)
    growth = {design: _variance_growth(design) for design in ("pre-ln", "zero-last", "rezero", "depth-mup")}
    literal_layers = 10
    literal = _literal_deepnorm(literal_layers)
    progress("training", 2, 3)
    trained = ["pre-ln", "post-ln", "rezero", *([] if quick else ["zero-last", "deepnorm-encoder"])]
    histories = {design: _train(design, quick) for design in trained}
    progress("done", 3, 3)
    found = Findings(
        decades,
        silent,
        histories,
        _printed_constant(),
        growth,
        literal,
        decades["deepnorm-encoder", max(depths)],
        literal_layers,
    )
    return _tables(found, depths), _claims(found, max(depths)), _notes(seeds)


def make(design: str, layers: int, seed: int) -> Subject:
    """Build one design; "article" is Pre-LN with what the printed code does to it."""
    arguments = next(arguments for name, _, arguments in DESIGNS if name == design)
    name = "pre-ln" if design == "article" else design
    subject = make_subject(name, {**arguments, "layers": layers}, seed)
    if design == "article":
        for path, parameter in subject.model.named_parameters():
            if path.endswith("mlp.branch.fc2.weight"):
                torch.nn.init.zeros_(parameter)
    return subject


def _silent_share(design: str) -> float:
    """Share of the blocks' weight matrices whose gradient is exactly zero before the first step."""
    subject = make(design, 6, 0)
    record_stream(subject, next(iter(subject.batches)))
    norms = [norm(p.grad) for n, p in subject.model.named_parameters() if n.startswith("blocks") and p.ndim > 1]
    return sum(value == 0 for value in norms) / len(norms)


def _variance_growth(design: str) -> float:
    """Variance of the stream's end over that of its start, 48 blocks."""
    subject = make(design, 48, 0)
    stream, _ = record_stream(subject, next(iter(subject.batches)))
    return float(stream[-1].detach().var() / stream[0].detach().var())


def _literal_deepnorm(layers: int) -> float:
    """log10 of the growth of the stream's norm under x = alpha x + F(x), the formula as printed: no norm, no beta."""
    arguments = {"layers": layers, "skip_scale": "deepnorm", "init": "pytorch"}
    stream, _ = record_stream(subject := make_subject("pre-ln", arguments, 0), next(iter(subject.batches)))
    return math.log10(norm(stream[-1]) / norm(stream[0]))


def _printed_constant() -> float:
    """Root mean square of what the printed zero-initialised feed-forward branch still emits: its bias."""
    subject = make("article", 2, 0)
    bias = subject.model.get_parameter("blocks.0.mlp.branch.fc2.bias")
    return float(bias.detach().square().mean().sqrt())


def _train(design: str, quick: bool) -> History:
    layers, num_steps = (10, 120) if quick else (12, 300)
    return train(token_subject(design, 0, layers=layers, batch=16), num_steps, 1e-3)


def steps_to_learn(history: History) -> float:
    """First step from which five losses in a row lie below `LEARNT`; inf when there is none."""
    for step in range(len(history.losses) - 4):
        if max(history.losses[step : step + 5]) < LEARNT:
            return float(step)
    return math.inf


def _tables(found: Findings, depths: Sequence[int]) -> list[Table]:
    before = [
        (words, *(found.decades.get((design, depth)) for depth in depths), found.silent[design])
        for design, words, _ in DESIGNS
    ]
    trained = [(design, one.losses[0], one.final_loss, steps_to_learn(one)) for design, one in found.histories.items()]
    return [
        table(
            "Before training",
            ("design", *(f"D, {depth} layers" for depth in depths), "weights without gradient at step 0"),
            before,
            "A branch that starts at zero passes the gradient unchanged and gets none itself at first. "
            "Fixup's head starts at zero, so nothing has a gradient yet.",
        ),
        table(
            "Variance of the stream, end over start, 48 layers",
            ("design", "ratio"),
            list(found.variance_growth.items()),
        ),
        table("Training", ("design", "loss at the start", "final loss", f"steps to a loss below {LEARNT:g}"), trained),
    ]


def _claims(found: Findings, deepest: int) -> list[Claim]:
    def flat(design: str, words: str) -> Check:
        return Check(words, "|D| (decades)", abs(found.decades[design, deepest]), high=FLAT_DECADES)

    claims = [
        Claim(
            "Starting the last layer of a branch at zero makes the block the identity and the gradient uniform.",
            HISTORY,
            (
                flat("zero-last", f"last weights and biases of both branches, {deepest} layers"),
                flat("article", f"the feed-forward's last weight only, as printed, {deepest} layers"),
            ),
            f"The printed code zeroes one weight: attention and the bias (rms {found.printed_rms:.3f}) stay.",
        ),
        _variance_claim(found, deepest),
        Claim(
            "DeepNorm is x = alpha x + F(x), and that is stable.",
            HISTORY,
            (
                Check(
                    f"as printed, {found.literal_layers} layers",
                    "growth of the stream (decades)",
                    found.literal_growth,
                    high=1.0,
                ),
            ),
            f"The printed formula grows as alpha^(2N), {_literal_decades(found.literal_layers):.1f} decades here.",
        ),
        Claim(
            "DeepNorm as published, the sum normalised and the branch shrunk by beta, keeps the gradient.",
            "Wang et al. 2022",
            (Check(f"{deepest} layers", "|D| (decades)", abs(found.normed_decades), high=0.1),),
        ),
        Claim(
            "ReZero passes the gradient unchanged at the start.",
            "Bachlechner et al. 2020",
            (flat("rezero", f"{deepest} layers"),),
        ),
    ]
    return [*claims, _faster(found)]


def _variance_claim(found: Findings, deepest: int) -> Claim:
    """The claim is about designs that keep the variance; Pre-LN, which does not, is what they are seen against."""
    checks = []
    for design in ("zero-last", "rezero", "depth-mup"):
        ratio, decades = found.variance_growth[design], abs(found.decades[design, deepest])
        checks.append(Check(f"{design}, 48 layers", "variance of the stream, end over start", ratio, high=4.0))
        checks.append(Check(f"{design}, {deepest} layers", "|D| (decades)", decades, high=0.1))
    growth, decades = found.variance_growth["pre-ln"], found.decades["pre-ln", deepest]
    return Claim(
        "Keeping the variance of the main path stable keeps the gradient.",
        HISTORY,
        tuple(checks),
        f"Plain Pre-LN does not keep it: the variance grows {growth:.0f} times, and D is {decades:+.2f}.",
    )


def _literal_decades(layers: int) -> float:
    return 2 * layers * math.log10(deepnorm_single(layers).alpha)


def _faster(found: Findings) -> Claim:
    took = {design: steps_to_learn(found.histories[design]) for design in ("pre-ln", "post-ln", "rezero")}
    return Claim(
        "ReZero converges faster early in training.",
        HISTORY,
        tuple(
            Check(
                f"against {design}",
                f"steps to a loss below {LEARNT:g}, ratio",
                took["rezero"] / took[design],
                high=0.95,
            )
            for design in ("pre-ln", "post-ln")
        ),
        "Steps taken: "
        + ", ".join(f"{design} {steps:g}" for design, steps in took.items())
        + "; one task, one seed, one learning rate.",
    )


def _notes(seeds: int) -> list[str]:
    return [
        f"Width 64, {seeds} seeds before training, one in training; Adam, learning rate 1e-3.",
        "D = log10(|g_0| / |g_L|); 0 is the same gradient at both ends.",
    ]
