"""Queries and keys against values: whether attention can still learn where to look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gradscope.metrics.columns import log10_ratio
from gradscope.metrics.weights import Parameter


@dataclass(frozen=True)
class AttentionBalance:
    """Query and key gradients against the value gradient of one attention.

    Attributes:
        module: The module that owns the projections (their common parent).
        query_to_value_log10: log10(||dW_q|| / ||dW_v||).
        key_to_value_log10: log10(||dW_k|| / ||dW_v||).
    """

    module: str
    query_to_value_log10: float | None
    key_to_value_log10: float | None

    @property
    def worst_log10(self) -> float | None:
        """The lower of the two."""
        known = [value for value in (self.query_to_value_log10, self.key_to_value_log10) if value is not None]
        return min(known) if known else None


def fused_balances(observed: Mapping[str, Mapping[tuple[str, int], float]]) -> tuple[AttentionBalance, ...]:
    """Compare the parts of fused weights, by role: (module, call) -> gradient norm of that part."""
    return tuple(
        AttentionBalance(
            place[0],
            log10_ratio(observed["query"].get(place), value),
            log10_ratio(observed["key"].get(place), value),
        )
        for place, value in observed["value"].items()
    )


def attention_balances(
    parameters: Iterable[Parameter], grad_norm: Mapping[int, float | None]
) -> tuple[AttentionBalance, ...]:
    """Compare the query, key and value weights of every attention, in order.

    At initialisation of a healthy Transformer the logarithm lies between -0.1 and about -3; when tokens have collapsed
    it is -4 and less, -8 being float32 rounding (Noci 2022; measured).
    """
    owners: dict[str, dict[str, float | None]] = {}
    for parameter in parameters:
        if parameter.role in ("query", "key", "value") and parameter.is_matrix and parameter.requires_grad:
            owner = parameter.module.rpartition(".")[0]
            owners.setdefault(owner, {}).setdefault(parameter.role, grad_norm.get(parameter.row))
    return tuple(
        AttentionBalance(
            owner,
            log10_ratio(norms.get("query"), norms["value"]),
            log10_ratio(norms.get("key"), norms["value"]),
        )
        for owner, norms in owners.items()
        if "value" in norms
    )
