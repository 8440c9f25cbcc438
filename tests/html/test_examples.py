"""The examples in the docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import gradscope.report.html as package
from gradscope.metrics import spread

MODULES = [spread.__name__, *(info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
