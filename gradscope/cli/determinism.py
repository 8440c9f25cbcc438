"""The same commit on the same machine gives the same result: deterministic kernels while the gate measures."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_CUBLAS_DETERMINISTIC = ":4096:8"
"""One of the two workspace sizes for which cuBLAS promises the same bits (its manual, Results Reproducibility)."""


@contextmanager
def deterministic() -> Iterator[None]:
    """Ask torch for deterministic kernels and put its flags back afterwards.

    Where an operation has no deterministic kernel, torch uses the other one: a gate that cannot run is worse than one
    whose last digits may differ.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault(_CUBLAS, _CUBLAS_DETERMINISTIC)  # read when CUDA starts
    import torch

    was_on = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have a deterministic implementation.*")
            yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=only_warned)
        torch.backends.cudnn.benchmark = benchmark
