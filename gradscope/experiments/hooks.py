"""The gradient-monitoring code that articles print, tried on the modules it will meet."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from gradscope.experiments.result import Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import HISTORY
from gradscope.experiments.stations import norm
from gradscope.variants.article_block import ResidualBlock

WIDTH = 16
NUM_LARGE, LARGE = 70_000, 300.0
"""A half-precision gradient whose norm, 79,373, is beyond float16's 65,504."""


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Try the printed code on five modules; it takes no time, so the short form is the long one."""
    progress("the printed monitoring code", 0, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        seen = {name: _seen(model, x) for name, (model, x) in _models().items()}
        raises = _raises_on_the_printed_block()
        half = float((torch.full((NUM_LARGE,), LARGE, dtype=torch.float16)).norm())
        split = _split_error()
    progress("done", 1, 1)
    rows = [(name, linears, calls, entries) for name, (linears, calls, entries) in seen.items()]
    coverage = table(
        "What the printed code records",
        ("model", "nn.Linear modules", "calls of them", "gradients recorded"),
        rows,
        "One entry per call would be right.",
    )
    return [coverage], [_code_claim(seen, raises, half), _ratio_claim(split)], []


def printed_hooks(model: nn.Module) -> dict[str, float]:
    """Register hooks as the article prints them: one per nn.Linear, keeping the norm of its output's gradient."""
    gradients: dict[str, float] = {}

    def make_hook(name: str):  # type: ignore[no-untyped-def]
        def hook(_module: nn.Module, _grad_input: object, grad_output: tuple[torch.Tensor, ...]) -> None:
            gradients[name] = grad_output[0].norm().item()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_full_backward_hook(make_hook(name))
    return gradients


class Repeated(nn.Module):
    """One linear layer used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it three times."""
        return self.linear(torch.relu(self.linear(torch.relu(self.linear(x)))))  # type: ignore[no-any-return]


class SelfAttention(nn.Module):
    """torch's own multi-head attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to itself."""
        return self.attention(x, x, x)[0]  # type: ignore[no-any-return]


def _models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    x = torch.randn(2, 5, WIDTH, requires_grad=True)
    encoder = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
    return {
        "two plain layers": (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)), x),
        "nn.MultiheadAttention": (SelfAttention(), x),
        "nn.TransformerEncoderLayer": (encoder, x),
        "one layer used three times": (Repeated(), x),
    }


def _seen(model: nn.Module, x: torch.Tensor) -> tuple[int, int, int]:
    """Count linear modules, and gradients the printed code records in one backward."""
    recorded = printed_hooks(model)
    linears = sum(isinstance(module, nn.Linear) for module in model.modules())
    model(x).square().sum().backward()
    calls = 3 if isinstance(model, Repeated) else linears
    return linears, calls, len(recorded)


def _raises_on_the_printed_block() -> bool:
    """Whether the same kind of hook, on a convolution of the article's own block, stops the backward or forward."""
    block = ResidualBlock(4, 4)
    block.conv2.register_full_backward_hook(lambda _module, _grad_input, _grad_output: None)
    try:
        block(torch.randn(2, 4, 6, 6, requires_grad=True)).sum().backward()
    except RuntimeError:
        return True
    return False


def _split_error() -> tuple[float, float]:
    """Relative error of g_x = g_skip + g_branch, and the ratio of the two, at x + f(N(x))."""
    branch = nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
    ).double()
    x = torch.randn(8, WIDTH, dtype=torch.float64, requires_grad=True)
    through_skip, through_branch = x.view_as(x), x.view_as(x)
    y = through_skip + branch(through_branch)
    upstream = torch.randn_like(y)
    total, skip, by_branch = torch.autograd.grad(y, (x, through_skip, through_branch), upstream)
    return norm(total - skip - by_branch) / norm(total), norm(by_branch) / norm(skip)


def _code_claim(seen: dict[str, tuple[int, int, int]], raises: bool, half: float) -> Claim:
    checks = [
        Check(name, "share of calls recorded", recorded / calls, low=1.0) for name, (_, calls, recorded) in seen.items()
    ]
    checks.append(Check("a hook on conv2 of the article's own block", "raises (1 = yes)", float(raises), high=0.0))
    checks.append(Check(f"float16, {NUM_LARGE} values of {LARGE:g}", ".norm()", half, high=1e6))
    return Claim(
        "register_full_backward_hook on every nn.Linear monitors the gradient flow.",
        HISTORY,
        tuple(checks),
        "torch's attention never calls its out_proj module, a shared layer overwrites its entry, an addition in place "
        "after a hooked module is refused, and a half-precision norm overflows.",
    )


def _ratio_claim(split: tuple[float, float]) -> Claim:
    error, ratio = split
    return Claim(
        "The gradient of the residual path can be told apart from that of the main path and their ratio watched.",
        HISTORY,
        (Check("x + f(N(x)), float64", "|g_x - g_skip - g_branch| / |g_x|", error, high=1e-12),),
        f"The two add up exactly; here the branch carries {ratio:.2f} of the skip.",
    )
