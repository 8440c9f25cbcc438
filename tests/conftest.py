"""What every test shares: one thread for torch (small tensors run fastest so) and skips that say their reason."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of example models."""
    return ROOT / "examples"


@pytest.fixture(scope="session")
def shared() -> Path:
    """A folder with reference cases (GRADSCOPE_SHARED); tests that need it are skipped elsewhere."""
    folder = os.environ.get("GRADSCOPE_SHARED", "")
    if not folder or not Path(folder, "cases").is_dir():
        pytest.skip("GRADSCOPE_SHARED does not point to a folder with reference cases")
    return Path(folder)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip GPU and browser tests where there is neither."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
    if item.get_closest_marker("browser") and not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no chromium and chromedriver on this machine")
