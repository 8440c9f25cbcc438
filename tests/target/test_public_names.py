"""A package's public function is never hidden by a file of the same name, whatever is imported first."""

from __future__ import annotations

import importlib
import pkgutil
import types

import pytest

import gradscope

PACKAGES = ["gradscope", *(m.name for m in pkgutil.walk_packages(gradscope.__path__, "gradscope.") if m.ispkg)]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_not_files(package: str) -> None:
    module = importlib.import_module(package)
    files = {found.name for found in pkgutil.iter_modules(module.__path__)}
    names = [name for name in getattr(module, "__all__", ()) if not isinstance(getattr(module, name), types.ModuleType)]
    assert not files & set(names)
