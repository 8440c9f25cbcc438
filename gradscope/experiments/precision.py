"""What low precision loses in residual additions, in norms and in exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from gradscope.experiments.result import Check, Claim, Table, table
from gradscope.experiments.running import Progress
from gradscope.experiments.sources import HISTORY, TUTORIAL

RATIOS = (0.1, 0.01, 0.001)
"""|f| / |x| at the additions looked at."""
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
SIGNIFICAND_BITS = {"bfloat16": 8, "float16": 11}
WIDTH = 256
NUM_ADDS = (24, 96, 384)
NOTICEABLE = 0.01
"""A loss of one percent would be worth float32."""
LARGE_ACTIVATION = 300.0
"""A size at which squares leave float16's range (65504)."""
SMALL_STDS = (1.0, 1e-2, 1e-3)
"""Input sizes at which eps 1e-5 starts to matter."""


def run(quick: bool, progress: Progress) -> tuple[Sequence[Table], Sequence[Claim], Sequence[str]]:
    """Measure absorption, error growth, norms and exponentials."""
    progress("residual additions", 0, 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        size = 200_000 if quick else 2_000_000
        absorbed = {(name, ratio): _absorbed(dtype, ratio, size) for name, dtype in DTYPES.items() for ratio in RATIOS}
        errors = {adds: _stream_error(adds, 64 if quick else 512) for adds in NUM_ADDS}
        coherent = _coherent_sum()
        progress("norms and exponentials", 1, 2)
        tables = [_absorption_table(absorbed), _error_table(errors), _eps_table(), _range_table()]
        claims = [_stream_claim(absorbed, errors, coherent), _norm_claim(), _eps_claim(), _exponential_claim()]
    progress("done", 2, 2)
    return tables, claims, ["Standard normal streams and branches; the closed form is the error function's mean."]


def _absorbed(dtype: torch.dtype, ratio: float, size: int) -> float:
    """Share of elements that an addition leaves as they were."""
    x = torch.randn(size).to(dtype)
    f = (ratio * torch.randn(size)).to(dtype)
    return float(((x + f) == x).float().mean())


def predicted_absorption(bits: int, ratio: float, draws: int = 200_000) -> float:
    """E erf(2^(e(x) - p) / (r sqrt 2)): f is lost when below half a unit in the last place of x."""
    x = torch.randn(draws, dtype=torch.float64)
    half_unit = 2.0 ** (x.abs().log2().floor() - bits)
    return float(torch.erf(half_unit / (ratio * math.sqrt(2))).mean())


def _stream_error(num_adds: int, rows: int) -> float:
    """Relative error of a bfloat16 stream after many additions of branches a tenth of its start."""
    exact = torch.randn(rows, WIDTH)
    low = exact.bfloat16()
    exact = low.float()
    for _ in range(num_adds):
        f = (0.1 * torch.randn(rows, WIDTH)).bfloat16()
        low, exact = low + f, exact + f.float()
    return float((low.float() - exact).norm() / exact.norm())


def _coherent_sum() -> float:
    """1 plus a thousand times 0.001, added one by one in bfloat16: 2 when nothing is lost."""
    total, step = torch.tensor(1.0).bfloat16(), torch.tensor(1e-3).bfloat16()
    for _ in range(1000):
        total = total + step
    return float(total)


def _naive_variance(dtype: torch.dtype) -> float:
    """Mean of squares of large activations, computed in the dtype itself."""
    x = (LARGE_ACTIVATION * torch.randn(64, WIDTH)).to(dtype)
    return float((x * x).mean(dim=-1).max())


def _norm_error(dtype: torch.dtype) -> float:
    """Relative error of torch's own layer_norm on large activations in a low dtype."""
    x = (LARGE_ACTIVATION * torch.randn(64, WIDTH)).to(dtype)
    exact = F.layer_norm(x.double(), (WIDTH,))
    return float((F.layer_norm(x, (WIDTH,)).double() - exact).norm() / exact.norm())


def _output_std(std: float, eps: float) -> float:
    return float(F.layer_norm(std * torch.randn(256, WIDTH), (WIDTH,), eps=eps).std())


def _written_norm_is_finite(eps: float) -> bool:
    """Whether a written-out float16 norm of a constant row is finite: 0 / sqrt(eps)."""
    x = torch.ones(1, 8, dtype=torch.float16)
    variance = x.var(dim=-1, keepdim=True, unbiased=False) + torch.tensor(eps, dtype=torch.float16)
    return bool(torch.isfinite((x - x.mean(dim=-1, keepdim=True)) / variance.sqrt()).all())


def _absorption_table(absorbed: dict[tuple[str, float], float]) -> Table:
    rows = [
        (name, ratio, share, predicted_absorption(SIGNIFICAND_BITS[name], ratio))
        for (name, ratio), share in absorbed.items()
    ]
    return table("Share of elements for which x + f = x", ("dtype", "|f| / |x|", "measured", "closed form"), rows)


def _error_table(errors: dict[int, float]) -> Table:
    rows = [(adds, error, error / math.sqrt(adds)) for adds, error in errors.items()]
    return table("Error of a bfloat16 stream", ("additions", "relative error", "error / sqrt(additions)"), rows)


def _eps_table() -> Table:
    rows = [(std, *(_output_std(std, eps) for eps in (1e-5, 1e-6, 1e-12))) for std in SMALL_STDS]
    return table(
        "Standard deviation of a LayerNorm's output",
        ("input standard deviation", "eps 1e-5", "eps 1e-6", "eps 1e-12"),
        rows,
        "1 is normalised.",
    )


def _range_table() -> Table:
    rows = [
        (
            name,
            float(torch.tensor(12.0).to(dtype).exp()),
            float(torch.tensor(100.0).to(dtype).exp()),
            _naive_variance(dtype),
        )
        for name, dtype in {"float32": torch.float32, **DTYPES}.items()
    ]
    return table("Range", ("dtype", "exp(12)", "exp(100)", "mean square of values near 300"), rows)


def _stream_claim(absorbed: dict[tuple[str, float], float], errors: dict[int, float], coherent: float) -> Claim:
    checks = [
        Check(f"{name}, |f|/|x| = {ratio:g}", "share of elements the addition leaves unchanged", share, low=NOTICEABLE)
        for (name, ratio), share in absorbed.items()
    ]
    checks += [
        Check(f"bfloat16, {adds} additions", "relative error of the stream", error, low=NOTICEABLE)
        for adds, error in errors.items()
    ]
    checks.append(Check("bfloat16, 1000 additions of 0.001 to 1", "what is lost", 2.0 - coherent, low=NOTICEABLE))
    return Claim(
        "Residual additions should be kept in float32.",
        HISTORY,
        tuple(checks),
        "It matters where branches are small against the stream, or steady in sign; elsewhere under a percent is lost.",
    )


def _norm_claim() -> Claim:
    return Claim(
        "LayerNorm should always be computed in float32.",
        HISTORY,
        (
            Check(
                "float16, written out, values near 300",
                "largest mean square",
                _naive_variance(torch.float16),
                low=65504,
            ),
            Check(
                "float16, torch's layer_norm, values near 300", "relative error", _norm_error(torch.float16), high=1e-3
            ),
        ),
        "torch's own kernel already computes in float32 inside; a norm written out in float16 overflows.",
    )


def _eps_claim() -> Claim:
    checks = [
        Check(f"eps {eps:g}, input std {std:g}", "output std", _output_std(std, eps), low=0.99, high=1.01)
        for eps in (1e-5, 1e-12)
        for std in SMALL_STDS
    ]
    checks += [
        Check(f"eps {eps:g} in float16, constant row", "finite (1 = yes)", float(_written_norm_is_finite(eps)), low=1)
        for eps in (1e-5, 1e-12)
    ]
    return Claim(
        "An epsilon from 1e-5 to 1e-12 is right.",
        HISTORY,
        tuple(checks),
        "1e-5 is felt by inputs below 0.01; 1e-12 is zero in float16 and protects nothing there.",
    )


def _exponential_claim() -> Claim:
    logits = torch.tensor([100.0, 0.0])
    return Claim(
        "Large values such as e^100 overflow in softmax and sigmoid.",
        TUTORIAL,
        (
            Check("exp(100) in float32", "finite (1 = yes)", float(logits.exp().isfinite().all()), high=0.0),
            Check(
                "torch's softmax of (100, 0)", "finite (1 = yes)", float(logits.softmax(0).isfinite().all()), high=0.0
            ),
            Check("torch's sigmoid of -100", "finite (1 = yes)", float((-logits).sigmoid().isfinite().all()), high=0.0),
        ),
        "The bare exponential does; softmax and sigmoid subtract first.",
    )
