"""The shared cases, where GRADSCOPE_SHARED points to them: models with a known truth."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gradscope.target.subject import Origin, Subject

SHARED = os.environ.get("GRADSCOPE_SHARED")
FOLDER = Path(SHARED or ".") / "cases"
NAMES = sorted(path.stem for path in FOLDER.glob("[0-9]*.py")) if SHARED else []


def truth() -> dict[str, Any]:
    return json.loads((FOLDER / "truth.json").read_text())


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shared_case_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def loss_of(case: ModuleType, output: Any, batch: Any) -> torch.Tensor:
    if hasattr(case, "loss"):
        return case.loss(output, batch)
    if isinstance(output, torch.Tensor):
        return output
    return output["loss"] if isinstance(output, dict) else output.loss


def subject(case: ModuleType) -> Subject:
    torch.manual_seed(0)
    model = case.model()
    return Subject(
        model, [case.batch()], lambda output, batch: loss_of(case, output, batch), case.__name__, Origin("batch()"),
        Origin("loss()"), root=FOLDER,
    )
