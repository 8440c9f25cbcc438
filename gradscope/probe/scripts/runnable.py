"""What can be run as a script: a file, a folder or an archive with a `__main__.py`, a module."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

from gradscope.errors import TargetError


def check_script(argv: list[str]) -> None:
    """Refuse what names no script.

    Raises:
        TargetError: There is no such file, or it is none that Python could run; or nothing was named.
    """
    hint = "gradscope run train.py --epochs 1, or gradscope run -m package.train"
    if not argv or (argv[0] == "-m" and len(argv) == 1):
        raise TargetError("There is no script to run.", rule="Name a Python file, or -m and a module.", hint=hint)
    if argv[0] == "-m":
        return
    path = Path(argv[0])
    if not path.exists():
        raise TargetError(f"There is no file '{path}'.", rule="run takes a Python script.", hint=hint)
    if path.is_dir() and not holds_main(path):
        raise TargetError(f"There is no __main__.py in '{path}'.", rule="run takes a Python script.", hint=hint)
    try:
        is_text = path.is_dir() or b"\0" not in path.read_bytes()
    except OSError as error:
        raise TargetError(f"'{path}' cannot be read: {error.strerror}.", rule="run takes a Python script.") from error
    if not is_text and not holds_main(path):
        raise TargetError(f"'{path}' is not a Python script.", rule="It is not text.", hint=hint)


def holds_main(path: Path) -> bool:
    """Tell whether something is a folder or an archive (of `python -m zipapp`) that Python can run."""
    if path.is_dir():
        return (path / "__main__.py").is_file()
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return "__main__.py" in archive.namelist()


def check_module(name: str) -> None:
    """Refuse a module that `python -m` could not run, before anything of it runs but its packages.

    Raises:
        TargetError: There is no such module, or it is a package without a `__main__`.
    """
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
            if spec is None:
                raise TargetError(f"-m {name} is a package without a __main__.", rule="Name a module in it.")
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise  # the package is there, but something it imports is not
        spec = None
    except ValueError:  # a module without a spec, such as __main__ itself
        spec = None
    if spec is None:
        raise TargetError(
            f"There is no module '{name}'.", rule="-m looks in the working directory and among what is installed.",
            hint="gradscope run -m package.train, in the folder that holds the package",
        )  # fmt: skip
