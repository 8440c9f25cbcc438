"""Compare the gradients through skips and branches with explicit autograd, on architectures of different forms.

python -m zoo.flows                    every architecture of the list
python -m zoo.flows timm:dpn48b ...    those named

Each model's step is repeated in double precision. For every residual addition whose flow is said to be exact, the
gradient at the sum, through the skip and through the branch, and the cosine of the last two, are those that
`torch.autograd.grad` returns on the retained graph. What is compared are norms; ratios, shares and cosines follow.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from torch import nn

from gradscope.probe.seeding import seed_everything
from gradscope.target import load
from gradscope.target.subject import Subject
from tests.structure.watching import Seen, doubled, explicit_flows, watched
from zoo.catalog import entries

FORMS = {
    "torchvision:resnet18": "identity and projection, in place",
    "torchvision:swin_t": "stochastic depth, windows",
    "torchvision:efficientnet_b0": "stochastic depth, squeeze and excitation",
    "timm:efficientformer_l1": "pooling less the stream, layer scale",
    "timm:dpn48b": "dual path, pre-activation projection",
    "timm:mvitv2_tiny": "projection beside a residual of its own",
    "timm:cait_xxs24_224": "layer scale, class attention",
    "timm:hrnet_w18_small": "several resolutions",
    "hf:univnet": "gated",
    "hf:gpt_neox": "parallel branches",
    "hf:t5": "encoder, decoder and cross-attention",
    "hf:bart": "Post-LN, cross-attention",
    "hf:albert": "one block again and again",
}
"""Targets of the catalogue and what their residual additions are like."""

TOLERANCE = 1e-8
"""Relative; double precision keeps 16 digits and the sums of a branch lose a few of them."""


class _Called(nn.Module):
    """A subject's own way of calling its model, as a module."""

    def __init__(self, subject: Subject, batch: Any) -> None:
        super().__init__()
        self.model, self._subject, self._batch = subject.model, subject, batch

    def forward(self) -> Any:
        return self._subject.call(self._batch)


def compare(target: str, arguments: dict[str, Any]) -> tuple[int, int, float]:
    """Return how many sites were compared, how many are said to be inexact, and the worst relative error."""
    subject = load(target, arguments=arguments, seed=0)
    subject.model.double()
    batch = doubled(next(iter(subject.batches)))
    seed_everything(0)
    seen = watched(_Called(subject, batch), loss=lambda output: subject.loss(output, batch).double(), retain=True)
    expected = explicit_flows(seen.structure, seen.loss)
    compared = inexact = 0
    worst = 0.0
    for flow, plan, truth in zip(seen.flows, seen.structure.plans, expected, strict=True):
        if truth is None or plan is None:
            continue
        if plan.inexact is not None or flow.branch is None:
            inexact += 1
            continue
        compared += 1
        worst = max(worst, _error(seen, (flow.grad, flow.skip, flow.branch, flow.dot), truth))
    return compared, inexact, worst


def _error(seen: Seen, handles: tuple[int | None, ...], truth: tuple[float, ...]) -> float:
    """The largest error of the three norms and of the inner product; each relative to the norms it is made of."""
    scales = (*truth[:3], truth[1] * truth[2])
    pairs = zip((seen.number(handle) for handle in handles), truth, scales, strict=True)
    return max((abs(measured - true) / (scale or 1.0) for measured, true, scale in pairs if measured is not None))


def main(targets: list[str]) -> int:
    """Print a line for each architecture; the exit code is 1 where a gradient differs."""
    warnings.simplefilter("ignore")
    known = {entry.target: entry.arguments for entry in entries()}
    wrong = 0
    for target in targets or FORMS:
        compared, inexact, worst = compare(target, known[target])
        wrong += worst > TOLERANCE
        counts = f"{compared:3} equal, {inexact:3} said to be inexact"
        print(f"{target:30.30} {counts}, error {worst:.1e}  {FORMS.get(target, '')}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
