"""Weights that are all but zero, or were never written: what they give is lost in rounding, or is noise of any size."""

from __future__ import annotations

import math

from gradscope.metrics.facts import Facts
from gradscope.metrics.weights import Parameter, rms

FAINT_GAIN = 1e-6
"""Gain (rms of the weights times sqrt(fan-in)) below which a layer passes nothing on: float32 keeps 6e-8 of what such
an output is added to, and two of them in a row leave less than that. The least that initialisations in use give is
3e-5 (a head at a standard deviation of 1e-6 over 768 inputs)."""

WRITTEN_RMS = (1e-30, 1e10)
"""Root mean square of a weight (absolute) outside of which nobody draws one: memory that was never written holds small
integers and addresses, which read as float32 are 1e-41 or 1e30. The least that is in use is 1e-10."""


def gain(parameter: Parameter, weight_norm: float) -> float:
    """Return rms(W) sqrt(fan-in): what a matrix multiplies the size of a random input by."""
    return weight_norm / math.sqrt(parameter.shape[0] or 1)


def faint(facts: Facts, step: int) -> list[Parameter]:
    """Return the trainable matrices that are all but zero at a step, and not exactly zero by design."""
    norms = facts.weight_norms.get(step, {})
    small = [p for p in facts.trainable if p.is_matrix and (norm := norms.get(p.row)) and gain(p, norm) < FAINT_GAIN]
    return [p for p in small if not _is_unwritten(norms[p.row], p)]


def unwritten(facts: Facts, step: int) -> list[Parameter]:
    """Return the trainable matrices that hold at a step what memory holds that was never written."""
    norms = facts.weight_norms.get(step, {})
    return [p for p in facts.trainable if p.is_matrix and _is_unwritten(norms.get(p.row), p)]


def _is_unwritten(weight_norm: float | None, parameter: Parameter) -> bool:
    size = rms(weight_norm, parameter.num_elements)
    return size is not None and math.isfinite(size) and size > 0 and not WRITTEN_RMS[0] <= size <= WRITTEN_RMS[1]


def layers(facts: Facts) -> list[Parameter]:
    """Return the weight matrices of layers: tables of embeddings multiply nothing."""
    tables = {module.name for module in facts.modules.values() if module.role == "embedding"}
    return [p for p in facts.trainable if p.is_matrix and p.module not in tables]


def beside_faint(facts: Facts, module: str) -> bool:
    """Whether a module, something inside of it or its neighbour is faint or unwritten for as long as was watched."""
    around = module.rpartition(".")[0]
    last = facts.steps[-1]
    owners = {p.module for p in (*faint(facts, last), *unwritten(facts, last))}
    return any(
        owner == module or owner.startswith(f"{module}.") or owner.rpartition(".")[0] == around for owner in owners
    )
