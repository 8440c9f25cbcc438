"""Write a model file and load it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a Python file (with the usual imports on top) into the working directory; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write_file(code: str, name: str = "user_model.py", head: str = HEAD) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + textwrap.dedent(code))
        return name

    return write_file
