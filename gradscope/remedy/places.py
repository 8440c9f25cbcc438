"""Where in a model a remedy can be applied, read from what was measured. Without torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gradscope.record import Recording


@dataclass(frozen=True)
class Branch:
    """One residual branch.

    Attributes:
        modules: Its modules by name, the one that reads the stream first.
        end: The module whose output is added: the last of them, or the norm or dropout behind it.
        normed: Whether it reads the stream through a norm.
        norm_after: The norm on the stream behind the addition; "" where there is none.
    """

    modules: tuple[str, ...]
    end: str
    normed: bool
    norm_after: str = ""


@dataclass(frozen=True)
class Places:
    """Places by module name.

    Attributes:
        plain_blocks: The repeated blocks of the stream without a residual addition, in order; each is called once.
        branches: The residual branches, in order.
        convolutions: Modules that read images: channels come second, not last.
        saturating: Sigmoid and tanh modules but for one that ends the model.
        redrawable: Whether the weights are as the factory left them, so that drawing them anew loses nothing.
    """

    plain_blocks: tuple[str, ...]
    branches: tuple[Branch, ...]
    convolutions: frozenset[str]
    saturating: tuple[str, ...]
    redrawable: bool = True


SATURATING = frozenset({"Sigmoid", "Tanh"})
"""Types of modules whose derivative vanishes on both sides."""
READS_NORMED = ("pre", "sandwich")
"""Placements whose branches read the stream through a norm."""
FINISHES = {"norm", "dropout"}
"""Roles of modules that may stand at a branch's end, behind its weights."""


def find_places(recording: Recording, *, redrawable: bool = True) -> Places:
    """Read the places from a recording of the model as it is."""
    calls = [str(name) for name in recording.tables["calls"]["module"]]
    modules = recording.tables["modules"]
    types = dict(zip(modules["name"], modules["type"], strict=True))
    roles = {str(name): str(role) for name, role in zip(modules["name"], modules["role"], strict=True)}
    saturating = [name for name in dict.fromkeys(calls) if types.get(name) in SATURATING]
    return Places(
        tuple(block for block in _blocks(recording, Counter(calls)) if not _has_addition(recording, block)),
        _branches(recording, calls, roles),
        frozenset(name for name, role in roles.items() if role == "conv" or _holds_conv(name, roles)),
        tuple(name for name in saturating if name != _last(calls)),
        redrawable,
    )


def _branches(recording: Recording, calls: list[str], roles: dict[str, str]) -> tuple[Branch, ...]:
    sites = recording.tables["sites"]
    found: dict[tuple[str, ...], Branch] = {}
    for row in range(recording.num_rows("sites")):
        names = tuple(str(name) for name in sites["branches"][row] or ())
        if names and sites["counted"][row] and not sites["recurrent"][row] and names not in found:
            placement, skips = str(sites["placement"][row]), [str(name) for name in sites["skips"][row] or ()]
            behind = _behind(names[-1], str(sites["module"][row] or ""), calls, roles, skips)
            normed = placement in READS_NORMED or roles.get(names[0]) == "norm"
            if placement == "post":
                norm = next((name for name in behind if roles[name] == "norm"), "")
                found[names] = Branch(names, names[-1], normed, norm)
            else:
                found[names] = Branch(names, behind[-1] if behind else names[-1], normed)
    return tuple(found.values())


def _behind(name: str, owner: str, calls: list[str], roles: dict[str, str], skips: list[str]) -> list[str]:
    """The norms and dropouts called right behind a module, in the module that adds and not on the skip."""
    place = len(calls) - 1 - calls[::-1].index(name) if name in calls else len(calls)
    found = []
    for later in calls[place + 1 :]:
        on_skip = any(_inside(later, skip) for skip in skips)
        if roles.get(later) not in FINISHES or on_skip or (owner and not _inside(later, owner)):
            break
        found.append(later)
    return found


def _blocks(recording: Recording, times_called: Counter[str]) -> list[str]:
    blocks = (str(name) for name in recording.tables["stream"]["block"] if name)
    return [name for name in dict.fromkeys(blocks) if times_called[name] == 1]


def _has_addition(recording: Recording, block: str) -> bool:
    return any(_inside(str(name), block) for name in recording.tables["sites"]["module"])


def _holds_conv(name: str, roles: dict[str, str]) -> bool:
    return any(role == "conv" and _inside(other, name) for other, role in roles.items())


def _inside(name: str, container: str) -> bool:
    return name == container or name.startswith(container + ".")


def _last(calls: list[str]) -> str:
    """The last leaf that was called: containers end after what they hold."""
    leaves = [name for name in calls if not any(other != name and _inside(other, name) for other in calls)]
    return leaves[-1] if leaves else ""
