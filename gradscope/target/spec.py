"""What a TARGET string says, before anything is imported."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from gradscope.errors import TargetError
from gradscope.target.nearest import did_you_mean, nearest

SCHEMES = ("builtin", "hf", "timm", "torchvision", "hub")
FORMS = (
    "file.py, file.py:attr, pkg.mod:attr, file.pt2, builtin:NAME, hf:DIR_OR_TYPE, timm:NAME, torchvision:NAME, "
    "hub:DIR:entry"
)
CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".index.json")
WINDOWS_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


@dataclass(frozen=True)
class Spec:
    """A parsed TARGET.

    Attributes:
        kind: file, module, exported, or one of SCHEMES.
        place: The path, the dotted module name, or what follows the scheme.
        attr: What follows the last colon; empty where there is none.
        text: The target as the user wrote it.
    """

    kind: str
    place: str
    attr: str
    text: str


def parse(target: str) -> Spec:
    """Split a target string into its kind, its place and its attribute.

    Raises:
        TargetError: If the string is empty, has an unknown scheme or no recognisable form.

    >>> parse("nets/model.py:build").attr
    'build'
    >>> parse("timm:resnet18").kind
    'timm'
    """
    if not target.strip():
        raise TargetError("The target is empty.", rule=f"A target is one of: {FORMS}.")
    scheme, _, rest = target.partition(":")
    if scheme in SCHEMES:
        return _with_scheme(scheme, rest, target)
    place, attr = split_attr(target)
    if place.endswith(".pt2"):
        return Spec("exported", place, attr, target)
    if place.endswith(".py") or Path(place).exists() or "/" in place or "\\" in place:
        return _a_file(place, attr, target)
    if attr and "." not in place and nearest(place, SCHEMES) and not _is_module(place):
        raise TargetError(f"There is no target scheme {place!r}.", rule=did_you_mean(place, SCHEMES))
    if re.fullmatch(r"[\w.]+", place) and (attr or "." in place):
        return Spec("module", place, attr, target)
    raise TargetError(f"{target!r} is not a file.", rule=f"A target is one of: {FORMS}.")


def split_attr(text: str) -> tuple[str, str]:
    """Split ``path/to/file.py:attr`` at its last colon, leaving a drive letter alone."""
    place, colon, attr = text.rpartition(":")
    if not colon or (WINDOWS_DRIVE.match(text) and len(place) == 1):
        return text, ""
    return place, attr


def _is_module(name: str) -> bool:
    return Path(f"{name}.py").exists() or Path(name).is_dir() or importlib.util.find_spec(name) is not None


def _with_scheme(scheme: str, rest: str, target: str) -> Spec:
    if not rest:
        raise TargetError(f"{target!r} names nothing after the colon.", rule=f"Write {scheme}:NAME.")
    if scheme in ("hub", "hf") and not Path(rest).exists():
        place, attr = split_attr(rest)
        return Spec(scheme, place, attr, target)
    return Spec(scheme, rest, "", target)


def _a_file(place: str, attr: str, target: str) -> Spec:
    path = Path(place)
    if path.is_dir():
        hint = f"gradscope inspect hf:{place}" if (path / "config.json").exists() else _python_files_in(path)
        raise TargetError(f"{place!r} is a directory.", rule="A target names a file.", hint=hint)
    if place.endswith(CHECKPOINT_SUFFIXES):
        raise TargetError(
            f"{place!r} holds weights, not a model.",
            rule="Name the code that builds the model, and give the weights to it.",
            hint=f"gradscope inspect model.py --weights {place}",
        )
    if path.exists() and not place.endswith(".py"):
        raise TargetError(f"{place!r} is not a Python file.", rule=f"A target is one of: {FORMS}.")
    return Spec("file", place, attr, target)


def _python_files_in(folder: Path) -> str:
    found = sorted(folder.glob("*.py"))
    return f"gradscope inspect {found[0]}" if found else ""
