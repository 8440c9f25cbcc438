"""The thresholds that other tools judge gradients by, applied to the same networks over the same eleven steps.

They are absolute numbers of parameter gradients, activation gradients and updates. Where a source leaves open what
exactly is compared, the reading is the usual one (mean absolute value of a weight's gradient).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks.calibration.training import AnyNetwork

NUM_STEPS = 11
LR = 1e-3


@dataclass
class Seen:
    """What the tools look at, step by step, for weight matrices and convolutions in order of the model."""

    mean_abs: list[list[float]] = field(default_factory=list)
    """Mean |g| per weight."""
    norms: list[list[float]] = field(default_factory=list)
    """L2 norm of g per weight."""
    zeros: list[float] = field(default_factory=list)
    """Share of gradient elements that are exactly zero."""
    update_log10: list[list[float]] = field(default_factory=list)
    """log10 of mean |update| over mean |weight| per weight."""
    activation_norms: list[float] = field(default_factory=list)
    """L2 norms of the gradients of module outputs in the first step."""
    finite: bool = True


def observe(network: AnyNetwork) -> Seen:
    """Take the steps with Adam, as the networks' recordings were made, and note what the tools note."""
    subject = network.subject()
    model = subject.model.to(getattr(torch, network.dtype))
    wanted = getattr(torch, network.dtype)
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad and parameter.dim() > 1]
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], LR)
    seen = Seen()
    handles = [module.register_forward_hook(_activation_hook(seen)) for module in model.modules()]
    for number, given in zip(range(NUM_STEPS), subject.batches, strict=False):
        batch = tuple(x.to(wanted) if x.is_floating_point() else x for x in given)
        optimizer.zero_grad()
        loss = subject.loss(subject.call(batch), batch)
        loss.backward()
        if number == 0:
            for handle in handles:
                handle.remove()
        grads = [torch.zeros_like(w) if w.grad is None else w.grad.double() for w in weights]
        seen.mean_abs.append([float(g.abs().mean()) for g in grads])
        seen.norms.append([float(g.norm()) for g in grads])
        seen.zeros.append(float(sum(int((g == 0).sum()) for g in grads)) / sum(g.numel() for g in grads))
        seen.finite &= math.isfinite(float(loss.detach())) and all(math.isfinite(n) for n in seen.norms[-1])
        before = [weight.detach().clone() for weight in weights]
        optimizer.step()
        seen.update_log10.append([_log10_update(old, new.detach()) for old, new in zip(before, weights, strict=True)])
        if not seen.finite:
            break
    return seen


def _activation_hook(seen: Seen) -> Callable[..., None]:
    def note(grad: Tensor) -> None:
        seen.activation_norms.append(float(grad.double().norm()))

    def hook(module: object, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(note)

    return hook


def _log10_update(old: Tensor, new: Tensor) -> float:
    weight, change = float(old.double().abs().mean()), float((new - old).double().abs().mean())
    return math.log10(change / weight) if weight > 0 and change > 0 else -math.inf


def sagemaker(seen: Seen) -> bool:
    """SageMaker Debugger: VanishingGradient mean |g| < 1e-7, ExplodingTensor NaN or Inf."""
    return not seen.finite or any(min(step) < 1e-7 for step in seen.mean_abs)


def autotrainer(seen: Seen) -> bool:
    """AutoTrainer: |g_first| / |g_last| < 1e-3 and |g_first| < 1e-4; explode > 70; 70 % of gradients zero."""
    vanish = any(s[0] < 1e-3 * s[-1] and s[0] < 1e-4 for s in seen.norms)
    explode = any(max(s) > 70 for s in seen.norms)
    return not seen.finite or vanish or explode or max(seen.zeros) >= 0.7


def thedeepchecker(seen: Seen) -> bool:
    """TheDeepChecker: mean |g| outside 1e-6 .. 1e6; updates outside 1e-4 .. 1e-1 of the weights, in half the layers."""
    vanish = any(min(step) < 1e-6 or max(step) > 1e6 for step in seen.mean_abs)
    outside = [sum(not -4 <= u <= -1 for u in step) / len(step) for step in seen.update_log10]
    return not seen.finite or vanish or max(outside) > 0.5


def torchlens(seen: Seen) -> bool:
    """TorchLens gradient_flow_audit: activation gradients below 1e-7 or above 1e4."""
    return not seen.finite or any(not 1e-7 <= norm <= 1e4 for norm in seen.activation_norms)


def deepdiagnosis(seen: Seen) -> bool:
    """DeepDiagnosis: mean |g| below 1e-7 in the last of the watched steps, or a loss that is NaN."""
    return not seen.finite or min(seen.mean_abs[-1]) < 1e-7


PEERS: dict[str, Callable[[Seen], bool]] = {
    "sagemaker": sagemaker,
    "autotrainer": autotrainer,
    "thedeepchecker": thedeepchecker,
    "torchlens": torchlens,
    "deepdiagnosis": deepdiagnosis,
}
