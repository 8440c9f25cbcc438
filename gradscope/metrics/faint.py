"""Weights that are all but zero: what they give is lost in rounding, and so is the gradient that comes back."""

from __future__ import annotations

import math

from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter

FAINT_GAIN = 1e-6
"""Gain (rms of the weights times sqrt(fan-in)) below which a layer passes nothing on: float32 keeps 6e-8 of what such
an output is added to, and two of them in a row leave less than that. The least that initialisations in use give is
3e-5 (a head at a standard deviation of 1e-6 over 768 inputs)."""


def gain(parameter: Parameter, weight_norm: float) -> float:
    """Return rms(W) sqrt(fan-in): what a matrix multiplies the size of a random input by."""
    return weight_norm / math.sqrt(parameter.shape[0] or 1)


def faint(facts: Facts, step: int) -> list[Parameter]:
    """Return the trainable matrices that are all but zero at a step, and not exactly zero by design."""
    norms = facts.weight_norms.get(step, {})
    return [p for p in facts.trainable if p.is_matrix and (norm := norms.get(p.row)) and gain(p, norm) < FAINT_GAIN]


def layers(facts: Facts) -> list[Parameter]:
    """Return the weight matrices of layers: tables of embeddings multiply nothing."""
    tables = {module.name for module in facts.modules.values() if module.role == "embedding"}
    return [p for p in facts.trainable if p.is_matrix and p.module not in tables]


def beside_faint(facts: Facts, module: str) -> bool:
    """Whether a module, something inside of it or its neighbour is all but zero for as long as was watched."""
    around = module.rpartition(".")[0]
    owners = {p.module for p in faint(facts, facts.steps[-1])}
    return any(
        owner == module or owner.startswith(f"{module}.") or owner.rpartition(".")[0] == around for owner in owners
    )
