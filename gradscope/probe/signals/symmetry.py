"""Units that are all alike: a weight whose rows are equal and get equal gradients stays so, whatever its size.

Rows are compared with their neighbours, at no more than eight places and over no more than 64 of their columns. Weights
are compared when the model is attached, and where rows are equal (constants and zeros) their gradients are at every
watched step. Rows are numbered by axis 0: output units of linear layers, output channels of convolutions, gates of
recurrent ones. Tables of embeddings have no units.

Source: Goodfellow et al. 2016, Deep Learning, section 8.4: initial parameters need to break symmetry between units.

Cost: default level; one comparison of 16 short rows per weight when attached, and nothing in a step where no weight
has equal rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradscope.probe.signals.observer import Observer, Place, Readings, StepContext, readable

MOST_PAIRS, MOST_COLUMNS = 8, 64
"""Pairs of rows that are compared, and over how many columns: units that are alike by chance are not over so many."""
ALIKE_SHARE = 0.625
"""Share of the pairs that must be alike: with eight, three may lie across the borders of an LSTM's four gates."""
FEWEST_UNITS = 4
"""Units (count) below which being alike may be meant: two gates, three colours."""


class Symmetry(Observer):
    """unit_spread of every weight that starts with equal rows."""

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self._alike: dict[str, nn.Parameter] = {}
        self._spreads: dict[str, Tensor] = {}

    def attach(self, model: nn.Module) -> None:  # noqa: D102
        self._alike = dict(_with_equal_rows(model))

    def begin(self, step: int, stations: frozenset[tuple[str, int]] | None) -> None:  # noqa: D102
        self._spreads.clear()

    def parameters(self, names: Sequence[str], grads: Tensor) -> None:  # noqa: D102
        if not self._alike:
            return
        for number, name in enumerate(names):
            weight, grad = self._alike.get(name), grads if len(names) == 1 else grads[number]
            if weight is not None and grad.shape == weight.shape:
                self._spreads[name] = torch.maximum(row_spread(grad), row_spread(weight.detach()))

    def finish(self, context: StepContext) -> None:  # noqa: D102
        for name, spread in self._spreads.items():
            self.readings.add_derived("unit_spread", Place(name), spread.reshape(1), _known)
        self._spreads.clear()


def row_spread(matrix: Tensor) -> Tensor:
    """Return how far rows differ from their neighbours, relative to their size: 0 alike, about 1.4 independent.

    Of all pairs the one at `ALIKE_SHARE` counts. Rows of nothing but zeros say nothing and give NaN.
    """
    first, second = (rows.float() for rows in _pairs(matrix))
    apart = (first - second).norm(dim=1) / first.norm(dim=1)
    spread: Tensor = apart.kthvalue(math.ceil(ALIKE_SHARE * len(apart))).values
    return spread


def _pairs(matrix: Tensor) -> tuple[Tensor, Tensor]:
    rows = matrix.detach().flatten(1)[:, :MOST_COLUMNS]
    stride = max(1, (rows.shape[0] - 1) // MOST_PAIRS)
    return rows[:-1:stride][:MOST_PAIRS], rows[1::stride][:MOST_PAIRS]


def _with_equal_rows(model: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)}
    for name, parameter in model.named_parameters():
        if id(parameter) not in tables and _has_units(parameter) and _has_equal_rows(parameter):
            yield name, parameter


def _has_units(parameter: nn.Parameter) -> bool:
    if not parameter.requires_grad or is_lazy(parameter) or not readable(parameter) or parameter.numel() == 0:
        return False
    return parameter.dim() > 1 and parameter.shape[0] >= FEWEST_UNITS


def _has_equal_rows(parameter: Tensor) -> bool:
    first, second = _pairs(parameter)
    # Most weights are random: their first column has it, and two short lists are compared for a tenth of the time.
    least = ALIKE_SHARE * len(first)
    alike = sum(a == b for a, b in zip(first[:, 0].tolist(), second[:, 0].tolist(), strict=True))
    return alike >= least and int((first == second).all(1).sum()) >= least


def _known(numbers: list[float]) -> float | None:
    return None if math.isnan(numbers[0]) else numbers[0]
