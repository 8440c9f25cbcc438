"""Compare the numbers of residual additions with explicit autograd, on architectures of different forms.

python -m zoo.flows                    every architecture of the list
python -m zoo.flows timm:dpn48b ...    those named

Each model's step is repeated in double precision. For every residual addition whose flow is said to be exact, the
gradient at the sum, through the skip and through the branch, their ratio, the cosine between them, the share of the
gradient energy and the effective path length over the model are those that `torch.autograd.grad` returns on the
retained graph. How large skip, branch and sum are in the forward is compared with what torch's dispatcher adds up.
"""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.metrics.residual import Site, effective_path_length
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
    "hf:falcon": "parallel branches behind one norm",
    "timm:resnest14d": "split attention, pooled shortcuts",
    "timm:test_nfnet": "constants on skip and branch",
    "timm:xcit_nano_12_p8_224": "layer scale, class token",
    "builtin:highway": "gated on both sides",
    "builtin:hyper-connections": "streams mixed by matrices",
    "builtin:mhc": "streams mixed by matrices of 20 rounds",
    "builtin:skipinit": "branches that start at nothing",
}
"""Targets and what their residual additions are like."""

TOLERANCE = 1e-8
"""Relative; double precision keeps 16 digits and the sums of a branch lose a few of them."""


class _Called(nn.Module):
    """A subject's own way of calling its model, as a module."""

    def __init__(self, subject: Subject, batch: Any) -> None:
        super().__init__()
        self.model, self._subject, self._batch = subject.model, subject, batch

    def forward(self) -> Any:
        return self._subject.call(self._batch)


class _Sums(TorchDispatchMode):
    """The norms of both terms and of the result of every plain addition that torch's dispatcher runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[float, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = func.overloadpacket in {torch.ops.aten.add, torch.ops.aten.add_} and not kwargs
        terms = [_norm(term) for term in args if isinstance(term, torch.Tensor)] if plain else []
        result = func(*args, **(kwargs or {}))
        if len(terms) == 2:  # noqa: PLR2004 - a sum of two tensors
            self.seen.append((*terms, _norm(result)))
        return result


def compare(target: str, arguments: dict[str, Any]) -> tuple[int, int, int, float]:
    """Return how many sites' gradients were compared, how many are inexact, how many forwards were, the worst error."""
    subject = load(target, arguments=arguments, seed=0)
    subject.model.double()
    batch = doubled(next(iter(subject.batches)))
    with _Sums() as sums:
        seed_everything(0)
        subject.loss(subject.call(batch), batch)
    seed_everything(0)
    seen = watched(_Called(subject, batch), loss=lambda output: subject.loss(output, batch).double(), retain=True)
    errors, inexact = [], 0
    sites: tuple[list[Site], list[Site]] = ([], [])
    for flow, plan, truth in zip(
        seen.flows, seen.structure.plans, explicit_flows(seen.structure, seen.loss), strict=True
    ):
        if truth is None or plan is None:
            continue
        if plan.inexact is not None or flow.branch is None:
            inexact += 1
            continue
        measured = tuple(seen.number(handle) for handle in (flow.grad, flow.skip, flow.branch, flow.dot))
        errors.append(_error(measured, truth))
        for known, norms in zip(sites, (measured, truth), strict=True):
            known.append(_site(*norms[1:]))
        errors.append(_difference(sites[0][-1], sites[1][-1]))
    lengths = [effective_path_length(known) or 0.0 for known in sites]
    forwards = [_forward_error(seen, handles, sums.seen) for handles in _forward_handles(seen)]
    return len(sites[0]), inexact, len(forwards), max([*errors, *forwards, abs(lengths[0] - lengths[1])], default=0.0)


def _error(measured: tuple[float | None, ...], truth: tuple[float, ...]) -> float:
    """The largest error of the three norms and of the inner product; each relative to the norms it is made of."""
    scales = (*truth[:3], truth[1] * truth[2])
    pairs = zip(measured, truth, scales, strict=True)
    return max((abs(number - true) / (scale or 1.0) for number, true, scale in pairs if number is not None))


def _site(skip: float | None, branch: float | None, dot: float | None) -> Site:
    """Return a site with the numbers of a report."""
    cosine = dot / (skip * branch) if skip and branch and dot is not None else None
    return Site(
        row=0, name="", module="", call=0, kind="", placement="", normalised=False, branches=(), skip_scale=None,
        branch_scale=None, on_stream=True, counted=True, file=None, line=None, skip_grad_norm=skip,
        branch_grad_norm=branch, cosine=cosine,
    )  # fmt: skip


def _difference(one: Site, other: Site) -> float:
    """The largest difference of cosine and energy share, and the relative one of the backward ratio."""
    pairs = [(one.cosine, other.cosine), (one.branch_energy_share, other.branch_energy_share)]
    ratios = [site.backward_ratio for site in (one, other)]
    if ratios[0] and ratios[1]:
        pairs.append((math.log(ratios[0]), math.log(ratios[1])))
    return max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=0.0)


def _forward_handles(seen: Seen) -> list[tuple[int | None, ...]]:
    """The norms of skip, branch and sum of the sites that are plain additions of whole tensors."""
    plain = {"add", "__add__", "__radd__", "__iadd__", "add_"}
    sites = [site for site in seen.counted if site.op in plain and site.residual is not None]
    return [site.forward_handles() for site in sites if site.residual and site.residual.branch.scale == 1.0]


def _forward_error(seen: Seen, handles: tuple[int | None, ...], sums: list[tuple[float, ...]]) -> float:
    """How far the addition that the dispatcher ran and that is nearest lies from a site's three norms, relatively."""
    numbers = [seen.number(handle) for handle in handles]
    if any(number is None for number in numbers):
        return 0.0
    skip, branch, out = (float(number or 0.0) for number in numbers)
    sides = ((skip, branch, out), (branch, skip, out))
    return min(
        (max(abs(a - b) / (b or 1.0) for a, b in zip(side, one, strict=True)) for one in sums for side in sides),
        default=math.inf,
    )


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach().double()))


def main(targets: list[str]) -> int:
    """Print a line for each architecture; the exit code is 1 where a number differs."""
    warnings.simplefilter("ignore")
    known = {entry.target: entry.arguments for entry in entries()}
    wrong = 0
    for target in targets or FORMS:
        compared, inexact, forwards, worst = compare(target, known.get(target, {}))
        wrong += worst > TOLERANCE
        counts = f"{compared:3} backward and {forwards:3} forward equal, {inexact:3} said to be inexact"
        print(f"{target:30.30} {counts}, error {worst:.1e}  {FORMS.get(target, '')}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
