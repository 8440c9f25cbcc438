"""Inspect the catalogue, print a table, and fail on any cell that is worse than it should be.

python -m zoo                     the whole catalogue
python -m zoo --ci                a fixed sample, as CI runs it
python -m zoo --only timm:vgg11   targets that contain a text
python -m zoo --new               architectures that results.csv does not have yet
python -m zoo --write             also write results.csv and docs/zoo.md
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

from zoo import pool, sample, summary, table
from zoo.catalog import Entry, entries
from zoo.commit import commit
from zoo.limits import LIMIT_S

WRITE_EVERY = 20
"""Rows after which the table is written, so that a run that is stopped keeps what it has."""


def main() -> int:
    """Run and return the exit code."""
    options = _parser().parse_args()
    before, known = table.read(), table.known_faults()
    catalogue = entries()
    chosen = _chosen(catalogue, before, options)
    rows, num_bad, measured_on = [], 0, commit()
    for row in pool.rows(chosen, options.steps, options.jobs, options.limit):
        rows.append(replace(row, commit=measured_on))
        worse = table.regressions(row, before.get(row.target), known.get(row.target, ()))
        num_bad += bool(worse)
        print(
            f"{row.target:44.44} {row.found or '-':>4}/{row.expected or '-':<4} {row.verdict:14.14} "
            f"{row.kinds:30.30} {'' if row.ran else row.runs[:100]}{'  <- ' if worse else ''}{'; '.join(worse)}",
            flush=True,
        )
        if options.write and len(rows) % WRITE_EVERY == 0:
            _write(rows, catalogue, before, known)
    if options.write:
        _write(rows, catalogue, before, known)
    print(f"\n{summary.lines(rows)}\n{len(rows) - num_bad} passed, {num_bad} failed")
    return 1 if num_bad or not rows else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ci", action="store_true", help="a fixed sample of the catalogue")
    parser.add_argument("--new", action="store_true", help="only what results.csv does not have yet")
    parser.add_argument("--only", default="", help="only targets that contain this text")
    parser.add_argument("--part", default="", help="K/N: the K-th of N parts, from 1")
    parser.add_argument("--steps", type=int, default=4, help="optimizer steps per architecture")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of processor time for one architecture")
    parser.add_argument("--write", action="store_true", help="write results.csv and docs/zoo.md")
    return parser


def _chosen(catalogue: list[Entry], before: dict[str, table.Row], options: argparse.Namespace) -> list[Entry]:
    chosen = [entry for entry in catalogue if options.only in entry.target]
    if options.new:
        chosen = [entry for entry in chosen if entry.target not in before]
    if options.ci:
        chosen = sample.ci_sample(chosen, before)
    if options.part:
        number, of = (int(text) for text in options.part.split("/"))
        chosen = sample.part(chosen, number - 1, of)
    return chosen


def _write(
    rows: list[table.Row], catalogue: list[Entry], before: dict[str, table.Row], known: dict[str, dict[str, str]]
) -> None:
    """Write what came out into the committed table: rows of architectures that were not looked at stay."""
    latest = before | {row.target: row for row in rows}
    merged = [
        replace(latest[entry.target], **table.by_hand(entry)) for entry in catalogue if entry.target in latest
    ]
    table.write(merged)
    summary.write_page(merged, catalogue, known)


if __name__ == "__main__":
    sys.exit(main())
