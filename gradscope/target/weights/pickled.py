"""Read what torch.save wrote: tensors and plain containers alone. Nothing that a pickle names is imported or run."""

from __future__ import annotations

import pickle
import pickletools
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from gradscope.errors import GradscopeError

REFUSED = (
    "Only tensors and plain containers are loaded: a pickle can run any code it likes. "
    "Save it with torch.save(model.state_dict(), path) or as .safetensors."
)
_DAMAGED = "copy it again; a good one holds what torch.save(model.state_dict(), path) wrote"
_MOST_UNPACKED = 16
"""How many times its own size an archive may hold: torch.save compresses nothing, a good one holds less than once."""
_FIRST_OF_PICKLE = 0x80
"""Every pickle from protocol 2 on begins with this byte; torch has never written an earlier one."""


def read_pickled(path: Path, kind: type[GradscopeError]) -> Any:
    """Return what torch.save wrote, refusing pickles that want to run code.

    Raises:
        GradscopeError: Of `kind`.
    """
    _refuse_at_sight(path, kind)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats that end in an error anyway
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = _named_by(str(error)) or _first_global(path)
        if wanted is None:
            raise _damaged(path, kind) from error
        raise kind(f"{path.name} wants to run code: {wanted}.", rule=REFUSED) from error
    except (
        RuntimeError, OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, AttributeError, TypeError,
    ) as error:  # fmt: skip
        if (zipfile.is_zipfile(path) and "constants.pkl" in str(error)) or "TorchScript" in str(error):
            raise kind(
                f"{path.name} is a TorchScript archive.", rule="Save the module's state_dict() instead."
            ) from error
        raise _damaged(path, kind) from error


def _refuse_at_sight(path: Path, kind: type[GradscopeError]) -> None:
    """Refuse what is no checkpoint, or would fill the memory, before it is opened."""
    size = path.stat().st_size
    if size == 0:
        raise kind(f"{path.name} is empty.", hint=_DAMAGED)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > _MOST_UNPACKED * size:
            raise kind(
                f"{path.name} unpacks to {unpacked // size} times its own size.",
                rule="torch.save compresses nothing; an archive like this fills the memory.",
            )
        return
    with path.open("rb") as file:
        first = file.read(4)
    if first[0] != _FIRST_OF_PICKLE and not first.startswith(b"PK"):
        raise kind(f"{path.name} is not a checkpoint.", rule="It is neither an archive of torch.save nor a pickle.")


def _damaged(path: Path, kind: type[GradscopeError]) -> GradscopeError:
    return kind(
        f"{path.name} is damaged or truncated ({path.stat().st_size:,} bytes).", rule="Its contents cannot be read.",
        hint=_DAMAGED,
    )  # fmt: skip


def _named_by(message: str) -> str | None:
    """Return the class or function that a refused pickle asked for, out of torch's message."""
    for marker in ("Unsupported global: GLOBAL ", "Unsupported class ", "Trying to instantiate class ", "GLOBAL "):
        if marker in message:
            return message.split(marker, 1)[1].split(maxsplit=1)[0].strip(".,'\"`")
    return None


def _first_global(path: Path) -> str | None:
    """Return the first class or function that a bare pickle names, read without running it."""
    words: list[str] = []
    try:
        with path.open("rb") as file:
            for operation, argument, _ in pickletools.genops(file):
                if operation.name in ("GLOBAL", "INST"):
                    return str(argument).replace(" ", ".")
                if operation.name == "STACK_GLOBAL":
                    return ".".join(words[-2:])
                if isinstance(argument, str):
                    words.append(argument)
    except (ValueError, OSError, EOFError):
        return None
    return None
