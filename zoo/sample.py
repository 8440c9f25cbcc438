"""Which part of the catalogue a run looks at: the same entries on every machine."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from zoo.catalog import Entry
from zoo.table import QUICK, Row

CI_ENTRIES = 130
"""About as many quick entries as two idle cores do in a few minutes."""

MOST_NEW = 12


def part(all_entries: Iterable[Entry], number: int, of: int) -> list[Entry]:
    """Return part `number` (from 0) of `of` parts, by a hash of the targets."""
    return [entry for entry in all_entries if crc32(entry.target.encode()) % of == number]


def ci_sample(all_entries: Iterable[Entry], table: dict[str, Row], size: int = CI_ENTRIES) -> list[Entry]:
    """Return CI's sample: a part of the quick entries, and one more for every kind of site that the part lacks.

    Entries that the committed table does not know are looked at as well, as somebody has just added them; of very many
    only some, the rest being for a run of ``--new``.
    """
    listed = list(all_entries)
    new = [entry for entry in listed if entry.target not in table]
    new = sorted(new, key=lambda entry: crc32(entry.target.encode()))[:MOST_NEW]
    quick = [entry for entry in listed if entry.target in table and table[entry.target].pace == QUICK]
    parts = max(round(len(quick) / size), 1)
    chosen = {entry.target for entry in [*new, *part(quick, 0, parts)]}
    seen = {what for target in chosen if target in table for what in _shows(target, table[target])}
    for entry in sorted(quick, key=lambda entry: crc32(entry.target.encode())):
        shows = _shows(entry.target, table[entry.target])
        if shows - seen:
            chosen.add(entry.target)
            seen |= shows
    return [entry for entry in listed if entry.target in chosen]


def _shows(target: str, row: Row) -> set[str]:
    kinds = {kind.partition(":")[0] for kind in row.kinds.split()}
    return {target.partition(":")[0], *kinds} | ({"hidden"} if row.hidden else set())
