"""Measure every tool on every workload and print one table; runs inside the tools' environment."""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.paired import paired
from benchmarks.peers.ways import OURS, WAYS, Way
from benchmarks.printed import header, say
from benchmarks.watching import plain_step
from benchmarks.workloads import WORKLOADS, Workload

CPU = torch.device("cpu")
CELL_S = 8.0
"""Seconds of pairs for each tool and network: sixty of them are to be measured. A tool that is so slow that one pair
takes longer is measured by that pair."""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--pairs-s", type=float, default=CELL_S)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # theirs
    chosen = [workload for workload in WORKLOADS if options.only in workload.name]
    lines = [say(header(CPU)), ""]
    lines += [say(f"| tool | version | one step yields | {' | '.join(w.name for w in chosen)} |")]
    lines += [say("|" + " --- |" * (3 + len(chosen)))]
    for way in WAYS:
        cells = [_cell(way, workload, options.pairs_s) for workload in chosen]
        lines.append(say(f"| {way.name} | {_version(way)} | {way.measures} | {' | '.join(cells)} |"))
        if options.output:  # row by row: what is stopped half-way leaves the rows that were done
            options.output.write_text("\n".join(lines) + "\n")
    return 0


def _version(way: Way) -> str:
    if way.package in ("", OURS):
        return "–" if not way.package else "this"
    try:
        return version(way.package)
    except PackageNotFoundError:
        return "cannot be installed"


def _cell(way: Way, workload: Workload, pairs_s: float) -> str:
    """Return the ratio with its quartiles, or in a word why there is none."""
    torch.manual_seed(0)
    task = workload.build(CPU)
    with tempfile.TemporaryDirectory() as folder:
        try:
            step, off = way.make(task, Path(folder))
        except ImportError:
            return "not installed"
        except Exception as error:  # a tool may refuse a model in any way it likes
            print(f"{way.name} on {workload.name}: {error!r}", file=sys.stderr)
            return type(error).__name__
        try:
            # Hooks stay on a model, so the plain step is that of a second one.
            return str(paired(plain_step(workload.build(CPU)), step, CPU, pairs_s, warm_up=1, least=1))
        except Exception as error:
            print(f"{way.name} on {workload.name}: {error!r}", file=sys.stderr)
            return type(error).__name__
        finally:
            off()


if __name__ == "__main__":
    sys.exit(main())
