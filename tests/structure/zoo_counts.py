"""Count the residual additions of the shared zoo, and check their gradients against autograd.

    GRADSCOPE_SHARED=... python tests/structure/zoo_counts.py [--flows] [--sites] [part of an id ...]

Needs torchvision, timm and transformers beside torch. Prints the entries whose count differs from the labelled one
(all entries when some are named), and ends with the number of differences as exit code.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(os.environ["GRADSCOPE_SHARED"]) / "zoo"), str(Path(__file__).parents[2])]

import catalog  # type: ignore[import-not-found]  # noqa: E402 - found through the path above
import entry as zoo_entry  # type: ignore[import-not-found]  # noqa: E402

from tests.structure.watching import Seen, doubled, explicit_flows, watched  # noqa: E402

TOLERANCE = 1e-9


def count(item: Any, *, flows: bool) -> tuple[Seen, float]:
    """Run one entry's step; return what was seen and the worst relative error of its flows."""
    model, batch = zoo_entry.make(item)
    if flows:
        model = model.double()
        batch = doubled(batch)
    torch.manual_seed(zoo_entry.SEED)
    arguments = (batch,) if isinstance(batch, dict) else batch
    seen = watched(_Called(model, item, isinstance(batch, dict)), *arguments, loss=item.loss, retain=flows)
    error = 0.0
    if flows:
        expected = explicit_flows(seen.structure, seen.loss)
        for flow, plan, truth in zip(seen.flows, seen.structure.plans, expected, strict=True):
            if truth is None or plan is None or plan.inexact or flow.branch is None:
                continue
            measured = [seen.number(handle) for handle in (flow.grad, flow.skip, flow.branch)]
            pairs = zip(measured, truth[:3], strict=True)
            error = max(error, *(_error(m, t) for m, t in pairs if m is not None))
    return seen, error


class _Called(torch.nn.Module):
    """The entry's own way of calling its model, as a module."""

    def __init__(self, model: torch.nn.Module, item: Any, by_keyword: bool) -> None:
        super().__init__()
        self.model, self.item, self.by_keyword = model, item, by_keyword

    def forward(self, *batch: Any) -> Any:
        return self.item.call(self.model, batch[0] if self.by_keyword else batch)


def _error(measured: float, truth: float) -> float:
    return abs(measured - truth) / truth if truth else abs(measured)


def main() -> int:
    """Run the entries that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flows", action="store_true", help="compare the gradients with explicit autograd, in float64")
    parser.add_argument("--sites", action="store_true", help="list the sites")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    wrong = total = 0
    for item in catalog.entries():
        if options.ids and not any(part in item.id for part in options.ids):
            continue
        total += 1
        start = time.perf_counter()
        try:
            seen, error = count(item, flows=options.flows)
        except Exception as problem:  # one model that cannot run must not end the list
            wrong += 1
            print(f"FAILED {item.id}: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
            continue
        found, expected = seen.structure.num_residual, item.expected_residual_adds
        right = expected is None or (found == expected and error < TOLERANCE and math.isfinite(error))
        wrong += not right
        if not right or options.ids:
            plans = [plan for plan in seen.structure.plans if plan is not None]
            print(
                f"{'ok' if right else 'WRONG':5} {item.id}: found {found}, labelled {expected} ({item.residual_kind}), "
                f"{len(seen.structure.stations)} stations, {sum(plan.inexact is not None for plan in plans)} inexact, "
                f"flow error {error:.1e}, {time.perf_counter() - start:.1f} s",
                flush=True,
            )
        if options.sites:
            for site in seen.structure.sites:
                print(f"      {site.name}: {site.kind}, {site.placement}, {site.file}:{site.line}")
    print(f"{total - wrong} of {total} right")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
