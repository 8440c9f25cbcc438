"""What went wrong in the user's own code, and on which of its lines."""

from __future__ import annotations

import linecache
import sys
import sysconfig
import traceback
from pathlib import Path

from gradscope.errors import GradscopeError

OWN_FOLDER = str(Path(__file__).parents[1])
LIBRARY_FOLDERS = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})
MOST_MESSAGE = 300
"""Characters of the user's own exception message that an error keeps; torch can print whole tensors."""


def is_user_file(name: str) -> bool:
    """Whether a source file is neither ours, nor Python's, nor an installed library's."""
    return not (name.startswith("<") or name.startswith(OWN_FOLDER) or name.startswith(LIBRARY_FOLDERS))


def user_line(error: BaseException) -> tuple[str | None, int | None]:
    """Return the file and line of the last frame of the user's code that the exception went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_file(frame.filename):
            return frame.filename, frame.lineno
    return None, None


def message_of(error: BaseException) -> str:
    """Return "TypeName: first words of the message", on one line."""
    words = " ".join(str(error).split())
    if len(words) > MOST_MESSAGE:
        words = words[:MOST_MESSAGE] + " …"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def raised(error: BaseException, doing: str, kind: type[GradscopeError], hint: str = "") -> GradscopeError:
    """Return the error of `kind` that tells what the user's code raised, and where.

    Args:
        error: What was raised.
        doing: What was going on, such as "building build_model() in model.py".
        kind: The class of the error to return.
        hint: What to type next.
    """
    file, line = user_line(error)
    code = linecache.getline(file, line).strip() if file and line else ""
    rule = f"At {_short(file)}:{line}: {code}" if file else ""
    if _is_out_of_memory(error):
        hint = hint or "smaller sizes: -a name=value, or --input for a smaller batch"
        return kind(f"{doing} ran out of memory.", rule=rule, hint=hint, file=file, line=line)
    return kind(f"{doing} raised {message_of(error)}.", rule=rule, hint=hint, file=file, line=line)


def _is_out_of_memory(error: BaseException) -> bool:
    words = str(error).lower()
    told = any(sign in words for sign in ("out of memory", "not enough memory", "can't allocate memory"))
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and told)


def _short(file: str | None) -> str:
    path = Path(file or "")
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def is_shadowing(module_name: str) -> bool:
    """Whether a module of that name is already loaded from somewhere else than the user's folder."""
    return module_name in sys.modules or module_name in sys.stdlib_module_names
