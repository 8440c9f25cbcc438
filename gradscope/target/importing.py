"""Import the user's model file or module, and tell apart the ways in which that can fail."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from gradscope.errors import TargetError
from gradscope.target.blame import is_shadowing, user_line
from gradscope.target.nearest import did_you_mean, nearest
from gradscope.target.sandbox import surroundings, user_code

_folders: set[Path] = set()
"""Folders that targets came from: their modules give way when another folder has files of the same names."""


def import_file(path: Path) -> ModuleType:
    """Import one Python file, as part of its package where it lies in one.

    The module is registered in ``sys.modules``, so that dataclasses and pickles of its classes work.

    Raises:
        TargetError: If there is no such file, or it cannot be imported.
    """
    if not path.exists():
        raise TargetError(f"There is no file {str(path)!r}.", rule=_files_like(path))
    path = path.resolve()
    folder, name = _package_of(path)
    _make_way(folder)
    dotted = "." in name
    with surroundings(folder):
        try:
            if dotted:
                module = importlib.import_module(name)
                if getattr(module, "__file__", None) == str(path):
                    return module
            return _execute(path, _free_name(path))
        except (Exception, SystemExit) as error:
            raise _explained(error, path.name, folder) from error


def import_dotted(name: str) -> ModuleType:
    """Import a module by its dotted name, looking in the working directory first.

    Raises:
        TargetError: If there is no such module, or it cannot be imported.
    """
    _make_way(Path.cwd())
    with surroundings(Path.cwd()):
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise _explained(error, name, Path.cwd(), wanted=name) from error


def folder_of(module: ModuleType) -> Path:
    """Return the folder that must be on sys.path for the module's own imports to work."""
    file = getattr(module, "__file__", None)
    return _package_of(Path(file).resolve())[0] if file else Path.cwd()


def _execute(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{str(path)!r} is not a Python file.", rule="A target file ends in .py.")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    return sys.modules.get(name, module)


def _package_of(path: Path) -> tuple[Path, str]:
    """Return the folder to import from and the dotted name of a file, climbing while there is an __init__.py."""
    folder, parts = path.parent, [] if path.stem == "__init__" else [path.stem]
    while (folder / "__init__.py").exists() and folder.name.isidentifier() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _free_name(path: Path) -> str:
    """Return the file's own name where it is free, else one that takes nobody's place."""
    current = sys.modules.get(path.stem)
    if path.stem.isidentifier() and (not is_shadowing(path.stem) or getattr(current, "__file__", "") == str(path)):
        return path.stem
    return f"gradscope_target_{abs(hash(str(path))):x}_" + "".join(c if c.isalnum() else "_" for c in path.stem)


def _make_way(folder: Path) -> None:
    """Forget modules of earlier targets' folders that `folder` has files of the same name for."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or "." in name:
            continue
        home = Path(file).parent if Path(file).name != "__init__.py" else Path(file).parents[1]
        if home != folder and home in _folders and ((folder / f"{name}.py").exists() or (folder / name).is_dir()):
            for loaded in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
                del sys.modules[loaded]
    _folders.add(folder)


def _explained(error: BaseException, what: str, folder: Path, wanted: str = "") -> BaseException:
    """Return the error that says in one line why an import failed."""
    if isinstance(error, TargetError):
        return error
    file, line = user_line(error)
    if isinstance(error, SyntaxError):
        place = Path(error.filename or what).name + (f":{error.lineno}" if error.lineno else "")
        return TargetError(
            f"{place}: syntax error: {error.msg}.",
            rule=(error.text or "").strip(),
            file=error.filename,
            line=error.lineno,
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name
        if wanted and (wanted == missing or wanted.startswith(missing + ".")):
            return TargetError(f"There is no module {missing!r}.", rule=_modules_like(missing, folder))
        return TargetError(
            f"{what} imports {missing!r}, which is not installed.",
            rule=_at(file, line),
            file=file,
            line=line,
            hint="Run gradscope with the Python that runs your model: python -m gradscope …",
        )
    if isinstance(error, ImportError) and (
        "partially initialized" in str(error) or _stem(error.path) == Path(what).stem
    ):
        return TargetError(
            f"{what} takes part in a circular import.", rule=f"{error}. {_at(file, line)}", file=file, line=line
        )
    try:
        with user_code(f"Importing {what}", None):
            raise error
    except TargetError as told:
        return told


def _stem(path: str | None) -> str:
    return Path(path).stem if path else ""


def _at(file: str | None, line: int | None) -> str:
    return f"At {Path(file).name}:{line}." if file else ""


def _files_like(path: Path) -> str:
    if not path.parent.is_dir():
        return f"There is no folder {str(path.parent)!r} either."
    there = [p.name for p in path.parent.glob("*.py")]
    return did_you_mean(path.name, there) if there else "There are no Python files in that folder."


def _modules_like(name: str, folder: Path) -> str:
    parent, _, last = name.rpartition(".")
    where = folder.joinpath(*parent.split(".")) if parent else folder
    there = [p.stem for p in where.glob("*.py")] + [p.parent.name for p in where.glob("*/__init__.py")]
    found = nearest(last, there)
    dots = f"{parent}." if parent else ""
    return f"Did you mean {', '.join(dots + f for f in found)}?" if found else "It is neither here nor installed."
