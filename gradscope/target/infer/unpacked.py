"""The axes of an input, from the names that a forward unpacks its shape into: ``B, T, H, W, C = x.shape``."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from dataclasses import replace

from gradscope.target.infer.changes import Lesson, with_guess
from gradscope.target.infer.documented import size_of
from gradscope.target.infer.guess import BATCH, Candidate
from gradscope.target.infer.roles import Hints

TOO_FEW = re.compile(r"not enough values to unpack \(expected (\d), got (\d)\)")
"""What Python says where a shape has fewer axes than names."""
FEWEST_AXES = 5
"""Batches of sequences, signals and pictures, of fewer axes, have usual forms that are tried anyway."""
COST = 1.5
"""Of such a guess: names are read where nothing else led anywhere."""
OF_PATCHES = {"side": "patch_size", "tokens": "temporal_patch_size"}
"""What an axis is as long as where samples are patches of pictures, by what it is else."""


def by_unpacking(error: BaseException | None, candidate: Candidate, hints: Hints) -> Iterator[Lesson]:
    """Give an input of as many axes as were there those that were wanted: of usual sizes, then those of a patch."""
    match = TOO_FEW.search(str(error))
    axes = _names(error) if match and isinstance(error, ValueError) else []
    if match is None or len(axes) != int(match[1]) or len(axes) < FEWEST_AXES:
        return
    patches = {name: hints.sizes[own] for name, own in OF_PATCHES.items() if own in hints.sizes}
    for rank, sizes in enumerate((hints.sizes, {**hints.sizes, **patches})):
        shape = (BATCH, *[size_of(axis, sizes) for axis in axes[1:]])
        for name, guess in candidate:
            if guess.kind == "float" and len(guess.shape) == int(match[2]):
                yield COST + rank / 10, with_guess(candidate, name, replace(guess, shape=shape))


def _names(error: BaseException | None) -> list[str]:
    """Return the names that the failing line unpacks something into."""
    here = error.__traceback__ if error is not None else None
    while here is not None and here.tb_next is not None:
        here = here.tb_next
    line = linecache.getline(here.tb_frame.f_code.co_filename, here.tb_lineno).strip() if here is not None else ""
    try:
        target = ast.parse(line).body[0]
    except (SyntaxError, IndexError):  # one line of several
        return []
    if not isinstance(target, ast.Assign) or not isinstance(target.targets[0], ast.Tuple):
        return []
    return [entry.id for entry in target.targets[0].elts if isinstance(entry, ast.Name)]
