"""Optional libraries: imported only when a target names them, called without ever downloading."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from gradscope.errors import MissingLibraryError, TargetError
from gradscope.target.blame import raised
from gradscope.target.nearest import did_you_mean
from gradscope.target.sandbox import surroundings

UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")


def import_library(name: str, target: str) -> ModuleType:
    """Import an optional library.

    Raises:
        MissingLibraryError: If it is not installed, with the line that installs it.
    """
    try:
        with surroundings(None):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != name.split(".", maxsplit=1)[0]:
            raise TargetError(
                f"{name} cannot be imported: {error}.", rule="It is installed, but something it needs is not."
            ) from error
        library = name.split(".", maxsplit=1)[0]
        raise MissingLibraryError(
            f"{target} needs {library}, which is not installed.", hint=f"pip install {library}"
        ) from error
    except (ImportError, RuntimeError, OSError) as error:
        raise raised(error, f"Importing {name}", TargetError) from error


def call_library(
    function: Callable[..., Any], label: str, known: Callable[[], Iterable[str]], /, **arguments: Any
) -> Any:
    """Call a library's factory, and tell an unknown argument apart from its other errors.

    Args:
        function: The factory.
        label: The model in words.
        known: The arguments that the model takes, asked for only when one is unknown.
        **arguments: What to pass.

    Raises:
        TargetError: If it raises.
    """
    try:
        with surroundings(None):
            return function(**arguments)
    except TypeError as error:
        if match := UNEXPECTED.search(str(error)):
            names = [name for name in known() if name not in ("self", "weights", "pretrained", "progress")]
            raise TargetError(f"{label} takes no argument {match[1]!r}.", rule=did_you_mean(match[1], names)) from error
        raise raised(error, f"Building {label}", TargetError) from error
    except Exception as error:  # a library's model may raise anything for a bad argument
        raise raised(error, f"Building {label}", TargetError) from error
