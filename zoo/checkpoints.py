"""Compare what is measured under activation checkpointing, of both kinds, with the plain run of the same architecture.

python -m zoo.checkpoints              every architecture of the list
python -m zoo.checkpoints hf:bert ...  those named

transformers' own switch turns checkpointing on. Sites, stations and their descriptions have to be the same, and so have
their numbers on the first two steps, up to rounding: under re-entrant checkpointing gradients are added up in another
order.
"""

from __future__ import annotations

import math
import os
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"

from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.record import Recording
from gradscope.target import load

TARGETS = ("hf:gpt2", "hf:gemma2", "hf:bert", "hf:t5", "hf:whisper", "hf:swinv2", "hf:mamba", "hf:modernbert")
"""Pre-LN, norms by hand, sandwiches, Post-LN, cross-attention, stochastic depth."""
TOLERANCE = 1e-4
"""Relative, in single precision, of sums over a step whose parts cancel."""
DESCRIBED = {"sites": ("name", "kind", "placement", "skip_scale", "branch_scale"), "stream": ("name", "kind", "site")}
MEASURED = {"site_stats": ("skip_norm", "branch_norm", "grad_norm", "skip_grad_norm", "branch_grad_norm"),
            "stream_stats": ("forward_norm", "grad_norm")}  # fmt: skip


def main() -> int:
    """Compare the targets and return the exit code."""
    warnings.simplefilter("ignore")
    wrong = 0
    targets = sys.argv[1:] or TARGETS
    for target in targets:
        plain = _measured(target, None)
        for reentrant in (False, True):
            seen = _measured(target, reentrant)
            differences, largest = _compared(plain, seen)
            wrong += bool(differences)
            told = "; ".join(differences) or f"the same, numbers within {largest:.1e}"
            kind = "re-entrant" if reentrant else "other kind"
            print(f"{target:14} {kind:11} {plain.num_rows('sites'):3} sites  {told}", flush=True)
    print(f"{2 * len(targets) - wrong} of {2 * len(targets)} as without checkpointing")
    return int(wrong > 0)


def _measured(target: str, reentrant: bool | None) -> Recording:
    """Take two steps; None checkpoints nothing."""
    subject = load(target)
    if reentrant is not None:
        subject.model.gradient_checkpointing_enable({"use_reentrant": reentrant})  # type: ignore[operator]
    return measure(subject, ProbeSettings(num_steps=2, watched_steps=(0, 1)))


def _compared(plain: Recording, seen: Recording) -> tuple[list[str], float]:
    """Return what is different, and the largest relative difference of a number."""
    found = [f"not measured: {row['what']}" for row in seen.rows("confessions")]
    for table, columns in DESCRIBED.items():
        pairs = [[[row[column] for column in columns] for row in one.rows(table)] for one in (plain, seen)]
        if pairs[0] != pairs[1]:
            found.append(f"{table} differ")
    largest = 0.0
    for table, columns in MEASURED.items():
        if plain.num_rows(table) != seen.num_rows(table):
            found.append(f"{seen.num_rows(table)} rows of {table} instead of {plain.num_rows(table)}")
            continue
        for one, other in zip(plain.rows(table), seen.rows(table), strict=True):
            largest = max(largest, *(_difference(one[column], other[column]) for column in columns))
    if largest > TOLERANCE:
        found.append(f"numbers differ by {largest:.1e}")
    return found, largest


def _difference(one: float | None, other: float | None) -> float:
    """Return how far two numbers are apart, relative to the larger one; infinity where one is none, or not finite."""
    if one == other:
        return 0.0
    if one is None or other is None or not math.isfinite(one - other):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))


if __name__ == "__main__":
    sys.exit(main())
