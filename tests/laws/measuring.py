"""Small networks, measured through the product's own probe, and the gate that closed forms are held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.record import Recording
from gradscope.target.subject import Origin, Subject

LN10 = math.log(10)


class Start(nn.Module):
    """Where the stream starts: the input, as a tensor that gradients arrive at."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


class Stack(nn.Module):
    """A start and blocks, one after the other: h_0 is the output of `start`, h_l that of `blocks.{l-1}`."""

    def __init__(self, width: int, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.start = Start(width)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        for block in self.blocks:
            x = block(x)
        return x


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    """norm(skip * x + branch(x))."""

    def __init__(
        self, branch: nn.Module, skip: float = 1.0, scale: float = 1.0, norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.branch, self.skip, self.scale, self.norm = branch, skip, scale, norm

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.skip == 1.0 else self.skip * x
        f = self.branch(x)
        y = kept + (f if self.scale == 1.0 else self.scale * f)
        return y if self.norm is None else self.norm(y)


def linear(n_in: int, variance: float, n_out: int | None = None, bias_variance: float = 0.0) -> nn.Linear:
    """A linear map with weights N(0, variance / n_in)."""
    layer = nn.Linear(n_in, n_out or n_in, bias=bias_variance > 0)
    nn.init.normal_(layer.weight, std=math.sqrt(variance / n_in))
    if bias_variance > 0:
        nn.init.normal_(layer.bias, std=math.sqrt(bias_variance))
    return layer


def plain_norm(width: int) -> nn.LayerNorm:
    """LayerNorm without gain, shift or epsilon."""
    return nn.LayerNorm(width, eps=0.0, elementwise_affine=False)


class Seen:
    """The recording of one watched run, by name."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        calls = recording.tables["calls"]
        self._calls = {key: row for row, key in enumerate(zip(calls["module"], calls["call"], strict=True))}
        self._parameters = {name: row for row, name in enumerate(recording.tables["parameters"]["name"])}

    def grad(self, module: str, call: int = 0, step: int = 0) -> float:
        return self._stat("call_stats", "grad_norm", step, call=self._calls[module, call])

    def forward(self, module: str, call: int = 0, step: int = 0) -> float:
        return self._stat("call_stats", "forward_norm", step, call=self._calls[module, call])

    def parameter(self, name: str, step: int = 0, column: str = "grad_norm") -> float:
        return self._stat("parameter_stats", column, step, parameter=self._parameters[name])

    def profile(self) -> list[float]:
        """log10 of the gradient norms at h_0 .. h_L of a Stack."""
        num_blocks = sum(name.startswith("blocks.") and name.count(".") == 1 for name, _ in self._calls)
        return [math.log10(self.grad(name)) for name in ("start", *(f"blocks.{i}" for i in range(num_blocks)))]

    def decades(self) -> float:
        """D = log10(|g_0| / |g_L|)."""
        profile = self.profile()
        return profile[0] - profile[-1]

    def sites(self, step: int = 0) -> list[dict[str, Any]]:
        rows = [row for row in self.recording.rows("site_stats") if row["step"] == step]
        return sorted(rows, key=lambda row: row["site"])

    def observed(self, metric: str) -> list[float]:
        return [row["value"] for row in self.recording.rows("observations") if row["metric"] == metric]

    def _stat(self, table: str, column: str, step: int, **key: int) -> float:
        (name, row), = key.items()
        for stat in self.recording.rows(table):
            if stat["step"] == step and stat[name] == row:
                assert stat[column] is not None, (table, column, key)
                return stat[column]
        raise KeyError((table, step, key))


def see(
    model: nn.Module,
    x: Tensor,
    loss: Callable[[Any, Any], Tensor] | None = None,
    dtype: str = "float64",
    **settings: Any,
) -> Seen:
    """Watch one step (float64) with a random readout, or the given loss."""
    readout: list[Tensor] = []

    def random_readout(output: Tensor, batch: Any) -> Tensor:
        if not readout:
            readout.append(torch.randn(output.shape, dtype=torch.float64).to(output.dtype))
        return (output * readout[0]).sum()

    subject = Subject(
        model=model, batches=[(x,)], loss=loss or random_readout, target="law",
        inputs_origin=Origin("given"), loss_origin=Origin("given"),
    )  # fmt: skip
    known: dict[str, Any] = {
        "num_steps": 1, "watched_steps": (0,), "optimizer": "none", "seed": None, "jacobian": False, "device": "cpu",
    }  # fmt: skip
    return Seen(measure(subject, ProbeSettings(dtype=dtype, **{**known, **settings})))


def over_seeds(num_seeds: int, run: Callable[[], float], first_seed: int = 0) -> list[float]:
    """Repeat a measurement from independent seeds."""
    values = []
    for seed in range(first_seed, first_seed + num_seeds):
        torch.manual_seed(1000 + seed)
        values.append(run())
    return values


def assert_law(values: Sequence[float], predicted: float, bias: float = 0.0) -> None:
    """Gate: |mean - predicted| < 4 standard errors + the finite-width bias, 2 / n per layer."""
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1))
    allowed = 4 * spread / math.sqrt(len(values)) + bias
    assert abs(mean - predicted) < allowed, f"{mean:.5g} is not {predicted:.5g} within {allowed:.2g}"


def close(value: float, tolerance: float = 1e-10) -> Any:
    """An exact identity in float64."""
    return pytest.approx(value, rel=tolerance, abs=tolerance)


def gaussian_mean(function: Callable[[Tensor], Tensor], variance: float, num_points: int = 4001) -> float:
    """E f(z) for z ~ N(0, variance), by the trapezoidal rule on [-8, 8] standard deviations."""
    u = torch.linspace(-8, 8, num_points, dtype=torch.float64)
    weight = torch.exp(-u * u / 2)
    return float((function(math.sqrt(variance) * u) * weight).sum() / weight.sum())
