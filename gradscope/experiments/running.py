"""Run an experiment by name."""

from __future__ import annotations

import importlib
import platform
import time
from collections.abc import Callable

from gradscope.experiments.catalog import find
from gradscope.experiments.result import ExperimentResult

Progress = Callable[[str, int, int], None]
"""``progress(what, done, total)``, called between the parts of an experiment."""


def silent(_what: str, _done: int, _total: int) -> None:
    """Report nothing."""


def run(name: str, quick: bool = False, progress: Progress | None = None) -> ExperimentResult:
    """Run an experiment.

    Args:
        name: Its name in the catalogue.
        quick: The short form: fewer seeds, steps and depths.
        progress: Told what is being done.

    Returns:
        Tables and judged claims.

    Raises:
        TargetError: There is no such experiment.
    """
    experiment = find(name)
    module = importlib.import_module(experiment.module)
    torch = importlib.import_module("torch")
    began = time.perf_counter()
    # Seeds inside are fixed; what the caller draws afterwards must not depend on an experiment having run.
    with torch.random.fork_rng(devices=[]):
        tables, claims, notes = module.run(quick, progress or silent)
    return ExperimentResult(
        experiment.name,
        experiment.title,
        tuple(tables),
        tuple(claims),
        tuple(notes),
        quick=quick,
        seconds=time.perf_counter() - began,
        provenance={"torch": str(torch.__version__), "python": platform.python_version()},
    )
