"""Token and sample cosine at the stations of the stream: rank collapse, which gradient norms do not show.

Mean off-diagonal cosine of n unit rows u_i from the norm of their sum: (|sum u_i|^2 - sum |u_i|^2) / (n (n - 1)),
linear in n where the matrix of cosines is quadratic. (Rank collapse: Dong 2021; Noci 2022.)

Cost: default level; a copy of at most 16k elements a call, twice, and ten kernels for those of one shape together: in
the first watched step for every block and every layer of a plain stack, later only for stations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gradscope.probe.listing import named_modules
from gradscope.probe.signals.gathered import Gathered
from gradscope.probe.signals.layout import Layout, thinned
from gradscope.probe.signals.observer import CallKey, Observer, Place, Readings, StepContext, first_tensor

MAX_SAMPLES = 16
"""Samples looked at: the mean cosine of 16 rows already averages 120 pairs."""
MAX_ELEMENTS = 16384
"""Elements looked at per call, so that the cost does not grow with tokens, width or image size."""
FEWEST_FEATURES = 5
"""Features of a token: points and boxes, of two and four positive numbers, are alike by what they are."""
_SKIPPED_ROLES = frozenset({"dropout", "attention"})


def mean_cosine(rows_NBTD: Tensor) -> Tensor:
    """Return the mean cosine over pairs along axis 2, averaged over axis 1, of each of N, as (N, 1) in float64.

    Rows of zero norm count as orthogonal to all.
    """
    rows = rows_NBTD.to(torch.promote_types(rows_NBTD.dtype, torch.float32))
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)
    unit = rows / lengths.clamp_min(torch.finfo(rows.dtype).tiny).to(rows.dtype)
    summed, own = (torch.linalg.vector_norm(x, dim=(1, 2, 3), dtype=torch.float64) for x in (unit.sum(2, True), unit))
    num_sets, num_rows = rows.shape[1:3]
    cosines: Tensor = (summed**2 - own**2) / (num_sets * num_rows * (num_rows - 1))
    return cosines.unsqueeze(1)


class Similarity(Observer):
    """token_cosine and sample_cosine of every station."""

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self._stations: frozenset[tuple[str, int]] | None = None
        self._rows = {"token_cosine": Gathered(mean_cosine), "sample_cosine": Gathered(mean_cosine)}
        self._layout: Layout | None = None
        self._in_stack: set[str] = set()

    def attach(self, model: nn.Module) -> None:  # noqa: D102
        self._layout = Layout(model)
        stacks = (nn.Sequential, nn.ModuleList)
        self._in_stack = {
            f"{name}.{child}" if name else child
            for name, module in named_modules(model)
            if name == "" or isinstance(module, stacks)
            for child, _ in module.named_children()
        }

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._stations = stations
        for rows in self._rows.values():
            rows.clear()

    def wants(self, name: str, module: nn.Module, role: str) -> bool:
        """Want what may be a station: blocks, embeddings, and the layers of a plain stack, but no layer in a block."""
        whole = bool(module._modules) or name in self._in_stack or role == "embedding"
        return name != "" and role not in _SKIPPED_ROLES and whole

    def forward(self, call: CallKey, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: D102
        if self._stations is not None and (call.module, call.call) not in self._stations:
            return
        x = first_tensor(output)
        if x is None or self._layout is None or x.dim() < 2 or x.numel() == 0:  # noqa: PLR2004
            return
        samples = self._layout.samples(x)[:MAX_SAMPLES]
        if samples.shape[0] > 1:
            flat = thinned(samples, MAX_ELEMENTS, kept_axes=(0,)).flatten(1)
            self._keep("sample_cosine", call, flat.unsqueeze(0))
        tokens = self._layout.tokens(x)
        if tokens is not None and tokens.shape[1] > 1 and tokens.shape[2] >= FEWEST_FEATURES:
            tokens = thinned(tokens, MAX_ELEMENTS, kept_axes=(2,))
            if tokens.shape[1] > 1:
                self._keep("token_cosine", call, tokens)

    def _keep(self, metric: str, call: CallKey, rows_BTD: Tensor) -> None:
        self._rows[metric].add(Place(call.module, call.call), rows_BTD.detach().clone())

    def finish(self, context: StepContext) -> None:  # noqa: D102
        for metric, rows in self._rows.items():
            rows.finish(self.readings, partial(self._record, metric, context.stations))

    def _record(
        self, metric: str, stations: frozenset[tuple[str, int]] | None, key: CallKey, numbers: list[float]
    ) -> None:
        if stations is None or (key.module, key.call) in stations:
            self.readings.add(metric, key.module, key.call, numbers[0])
