"""The classic experiments on residual connections and normalisation, each run anew and judged by its numbers."""

from __future__ import annotations

from gradscope.experiments.catalog import EXPERIMENTS, Experiment, find
from gradscope.experiments.result import Check, Claim, ExperimentResult, Table
from gradscope.experiments.running import Progress, run

__all__ = ["EXPERIMENTS", "Check", "Claim", "Experiment", "ExperimentResult", "Progress", "Table", "find", "run"]
