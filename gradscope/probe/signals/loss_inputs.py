"""Loss mistakes that train without an error: a softmax or sigmoid applied twice, log-probabilities that are none.

A loss function that applies its own softmax or sigmoid expects logits. Fed with probabilities its gradient shrinks and
its best value stays far from 0 (log of sum over classes of e^p). ``nll_loss`` expects log-probabilities.

How far the rows differ says whether the loss can tell samples apart at all.

Cost: default level; a few small kernels per loss call on at most 4096 rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradscope.probe.signals.logits import MASKED_BELOW
from gradscope.probe.signals.observer import CallKey, Observer

MAX_ROWS = 4096
"""Rows looked at of what is handed to a loss."""
SUM_TOLERANCE = 1e-2
"""How far a row of probabilities in half precision may be from summing to one."""
MIN_VALUES = 12
"""Fewest values (count) that are judged to lie in [0, 1]."""
MOST_NODES = 16
"""How far (graph nodes) a squashing function is looked for in front of the loss: a view, a slice or two, a clamp."""

_CROSS_ENTROPY = F.cross_entropy
_LOG_SOFTMAX: frozenset[Callable[..., Any]] = frozenset({F.log_softmax, torch.log_softmax, Tensor.log_softmax})
_NLL = F.nll_loss
_BCE_LOGITS = F.binary_cross_entropy_with_logits
_SQUASHING = frozenset({"Sigmoid", "Softmax", "Hardsigmoid", "Hardtanh", "Tanh", "Exp"})
"""Graph nodes of functions into a bounded range, or of their parts: 1 / (1 + exp(-x)), (1 + tanh(x)) / 2."""
_LAYER = re.compile(r"Conv|mm$|Mm$|Mv$|Linear|Norm|Embedding")
"""Graph nodes of layers: what lies in front of one did not make the values."""


class LossInputs(Observer):
    """What is handed to the loss's own functions: probabilities_as_logits, loss_classes and their like."""

    functions = frozenset({*_LOG_SOFTMAX, _CROSS_ENTROPY, _NLL, _BCE_LOGITS})

    def function(  # noqa: D102
        self, call: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        x = args[0] if args else kwargs.get("input")
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.numel() == 0 or x.dim() == 0:
            return
        squashed, x = is_squashed(x), x.detach()
        if func is _BCE_LOGITS:
            some = x.reshape(-1)[:MAX_ROWS]
            if some.numel() < MIN_VALUES:
                return
            inside = ((some >= 0) & (some <= 1)).all()
            self._add("probabilities_as_logits", call, inside & squashed)
            return
        axis = _class_axis(func, x, args, kwargs)
        if func is _CROSS_ENTROPY:
            self.readings.add("loss_classes", call.module, call.call, float(x.shape[axis]))
        if x.shape[axis] < 2:  # noqa: PLR2004 - one class always has probability 1
            return
        rows = x.movedim(axis, -1).flatten(0, -2)[:MAX_ROWS].to(torch.float32)
        if func is _CROSS_ENTROPY:
            shown = rows.masked_fill(rows <= MASKED_BELOW, 0.0)
            self._add("logits_rms", call, shown.square().mean().sqrt())
            if rows.shape[0] > 1:
                self._add("logit_spread", call, spread(shown))
        if func is _NLL:
            off = (rows.logsumexp(-1).abs() > SUM_TOLERANCE).to(torch.float32).mean()
            self._add("unnormalised_log_probabilities", call, off)
        else:
            summed = ((rows.sum(-1) - 1).abs() < SUM_TOLERANCE) & (rows.amin(-1) >= 0)
            self._add("probabilities_as_logits", call, summed.to(torch.float32).mean())

    def _add(self, metric: str, call: CallKey, value: Tensor) -> None:
        self.readings.add(metric, call.module, call.call, value.to(torch.float32))


def is_squashed(x: Tensor) -> bool:
    """Whether no layer lies between a tensor and the function that squashed it, such as a sigmoid.

    That its values lie in [0, 1] does not tell: fresh logits that differ little between samples often do.
    """
    node = x.grad_fn
    for _ in range(MOST_NODES):
        name = node.name().rpartition("::")[2].partition("Backward")[0] if node is not None else ""
        if name in _SQUASHING:
            return True
        before = [] if node is None else [following for following, _ in node.next_functions if following is not None]
        if len(before) != 1 or _LAYER.search(name):
            return False
        node = before[0]
    return False


def spread(rows_NC: Tensor) -> Tensor:
    """Return how far rows of logits differ from their mean, as a root mean square, up to a number added to a row.

    A softmax does not see what is added to all logits of a row.
    """
    centred = rows_NC - rows_NC.mean(-1, keepdim=True)
    return (centred - centred.mean(0)).square().mean().sqrt()


def _class_axis(func: Callable[..., Any], x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    if func in _LOG_SOFTMAX:
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        return dim if isinstance(dim, int) else -1
    return 1 if x.dim() > 1 else 0
