"""Where in a model a remedy can be applied, read from what was measured. Without torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gradscope.record import Recording


@dataclass(frozen=True)
class Places:
    """Places by module name.

    Attributes:
        plain_blocks: The repeated blocks of the stream without a residual addition, in order; each is called once.
        branches: The modules of each residual branch, the one that reads the stream first.
        stream_norms: Norms inside of blocks that stand on the stream and not in a branch, in order.
        convolutions: Modules that read images: channels come second, not last.
        saturating: Sigmoid and tanh modules but for one that ends the model.
        redrawable: Whether the weights are as the factory left them, so that drawing them anew loses nothing.
    """

    plain_blocks: tuple[str, ...]
    branches: tuple[tuple[str, ...], ...]
    stream_norms: tuple[str, ...]
    convolutions: frozenset[str]
    saturating: tuple[str, ...]
    redrawable: bool = True


SATURATING = frozenset({"Sigmoid", "Tanh"})
"""Types of modules whose derivative vanishes on both sides."""


def find_places(recording: Recording, *, redrawable: bool = True) -> Places:
    """Read the places from a recording of the model as it is."""
    calls = [str(name) for name in recording.tables["calls"]["module"]]
    modules = recording.tables["modules"]
    types = dict(zip(modules["name"], modules["type"], strict=True))
    roles = dict(zip(modules["name"], modules["role"], strict=True))
    branches = _branches(recording)
    blocks = _blocks(recording, Counter(calls))
    order = {name: place for place, name in enumerate(calls)}
    norms = [name for name in order if roles.get(name) == "norm" and _on_stream(name, blocks, branches)]
    saturating = [name for name in order if types.get(name) in SATURATING]
    return Places(
        tuple(block for block in blocks if not _has_addition(recording, block)),
        branches,
        tuple(norms),
        frozenset(str(name) for name, role in roles.items() if role == "conv" or _holds_conv(str(name), roles)),
        tuple(name for name in saturating if name != _last(calls)),
        redrawable,
    )


def _branches(recording: Recording) -> tuple[tuple[str, ...], ...]:
    sites = recording.tables["sites"]
    found = [
        tuple(str(name) for name in names)
        for names, counted, recurrent in zip(sites["branches"], sites["counted"], sites["recurrent"], strict=True)
        if names and counted and not recurrent
    ]
    return tuple(dict.fromkeys(found))


def _blocks(recording: Recording, times_called: Counter[str]) -> list[str]:
    blocks = (str(name) for name in recording.tables["stream"]["block"] if name)
    return [name for name in dict.fromkeys(blocks) if times_called[name] == 1]


def _has_addition(recording: Recording, block: str) -> bool:
    return any(_inside(str(name), block) for name in recording.tables["sites"]["module"])


def _on_stream(name: str, blocks: list[str], branches: tuple[tuple[str, ...], ...]) -> bool:
    in_branch = any(_inside(name, part) for branch in branches for part in branch)
    return not in_branch and any(_inside(name, block) for block in blocks)


def _holds_conv(name: str, roles: dict[object, object]) -> bool:
    return any(role == "conv" and _inside(str(other), name) for other, role in roles.items())


def _inside(name: str, container: str) -> bool:
    return name == container or name.startswith(container + ".")


def _last(calls: list[str]) -> str:
    """The last leaf that was called: containers end after what they hold."""
    leaves = [name for name in calls if not any(other != name and _inside(other, name) for other in calls)]
    return leaves[-1] if leaves else ""
