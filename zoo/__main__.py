"""Inspect the catalogue, print a table, and fail on any cell that is worse than it should be.

python -m zoo                     the whole catalogue
python -m zoo --ci                a fixed sample, as CI runs it
python -m zoo --only timm:vgg11   targets that contain a text
python -m zoo --write             also write results.csv
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import sys
from collections.abc import Iterator

from zoo.catalog import FOLDER, Entry, entries, sample

RESULTS = FOLDER / "results.csv"
KNOWN = FOLDER / "known_faults.csv"
CI_PARTS = 4
"""CI looks at one part in so many: what two cores do in a quarter of an hour."""
TASKS_PER_PROCESS = 12
"""A fresh process now and then: libraries keep memory."""
LIMIT_S = 240


def main() -> int:
    """Run and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ci", action="store_true", help="a fixed sample of the catalogue")
    parser.add_argument("--only", default="", help="only targets that contain this text")
    parser.add_argument("--part", default="", help="K/N: the K-th of N parts, from 1")
    parser.add_argument("--steps", type=int, default=4, help="optimizer steps per architecture")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="write results.csv")
    options = parser.parse_args()
    chosen = [entry for entry in entries() if options.only in entry.target]
    if options.ci:
        chosen = sample(chosen, 0, CI_PARTS)
    if options.part:
        part, of = (int(number) for number in options.part.split("/"))
        chosen = sample(chosen, part - 1, of)
    rows, num_bad = [], 0
    known = _known_faults()
    for outcome in _outcomes(chosen, options.steps, options.jobs):
        faults = [fault for fault in outcome.wrong if (outcome.target, fault.split(":")[0]) not in known]
        num_bad += bool(faults)
        rows.append(outcome.row())
        count = "-" if outcome.found is None else outcome.found
        expected = "-" if outcome.expected is None else outcome.expected
        print(f"{outcome.target:48.48} {count:>4}/{expected:<4} {outcome.verdict:15} {outcome.seconds:6.1f} s  "
              f"{outcome.kinds:32.32} {'; '.join(faults)}", flush=True)  # fmt: skip
    if options.write:
        _write(rows)
    _summary(rows, num_bad)
    return 1 if num_bad or not rows else 0


def _outcomes(chosen: list[Entry], num_steps: int, jobs: int) -> Iterator[object]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=_quiet, maxtasksperchild=TASKS_PER_PROCESS) as pool:
        waiting = [(entry, pool.apply_async(_examine, (entry, num_steps))) for entry in chosen]
        for entry, result in waiting:
            try:
                yield result.get(timeout=LIMIT_S)
            except multiprocessing.TimeoutError:
                yield _lost(entry)


def _quiet() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"


def _examine(entry: Entry, num_steps: int) -> object:
    import torch

    torch.set_num_threads(1)
    from zoo.examine import examine

    return examine(entry, num_steps)


def _lost(entry: Entry) -> object:
    from zoo.examine import Outcome

    return Outcome(entry.target, f"no answer within {LIMIT_S} s", None, None, entry.expected, "", "", "", "", LIMIT_S)


def _known_faults() -> set[tuple[str, str]]:
    if not KNOWN.exists():
        return set()
    with KNOWN.open(newline="") as file:
        return {(row["target"], row["fault"]) for row in csv.DictReader(file)}


def _write(rows: list[dict[str, object]]) -> None:
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: str(row["target"])))


def _summary(rows: list[dict[str, object]], num_bad: int) -> None:
    run = [row for row in rows if row["runs"] == "yes"]
    counted = [row for row in run if row["expected"] != ""]
    expected = sum(int(str(row["expected"])) for row in counted)
    missed = sum(max(0, int(str(row["expected"])) - int(str(row["found"]))) for row in counted)
    extra = sum(max(0, int(str(row["found"])) - int(str(row["expected"]))) for row in counted)
    print(
        f"\n{len(run)} of {len(rows)} inspected without configuration; "
        f"{sum(row['unchanged'] is True for row in run)} of {len(run)} with unchanged gradients; "
        f"{expected - missed} of {expected} counted residual additions found, {extra} false; "
        f"{sum(bool(row['errors']) for row in run)} with a false alarm"
    )
    print(f"{len(rows) - num_bad} passed, {num_bad} failed")


if __name__ == "__main__":
    sys.exit(main())
