"""Run the calibration: python -m benchmarks.calibration train | retry | measure | judge | fit [--part 1/4].

``train`` decides which networks train (most of the time), ``retry`` gives SGD more rates where only Adam trained,
``measure`` watches each for eleven steps and keeps the recordings, ``judge`` reads predictors off the recordings,
``fit`` derives thresholds and writes docs/calibration.md.
Every command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence

import torch

from benchmarks.calibration import results
from benchmarks.calibration.networks import fresh_networks, networks
from benchmarks.calibration.newcomers import newcomers
from benchmarks.calibration.outsiders import outsiders
from benchmarks.calibration.strangers import strangers
from benchmarks.calibration.training import CHANCES, AnyNetwork, Outcome, another_chance, outcome

OPTIMIZERS = ("adam", "sgd")
SETS: dict[str, Callable[[], Sequence[AnyNetwork]]] = {
    "main": networks, "fresh": fresh_networks, "blind": strangers, "blind2": newcomers,
    "blind3": outsiders,
}  # fmt: skip
"""The two halves; networks of other depths and another seed; networks of wirings that no rule was developed on."""


def train(chosen: Sequence[AnyNetwork]) -> None:
    """Train every network that has no outcome yet, once with each optimizer."""
    for number, network in enumerate(chosen):
        for optimizer in OPTIMIZERS:
            # Read anew each time: another run may have come from the other end of the list.
            if any(r["name"] == network.name and r["optimizer"] == optimizer for r in results.read(results.OUTCOMES)):
                continue
            start = time.perf_counter()
            found = outcome(network, optimizer)
            results.append(results.OUTCOMES, _row(network, optimizer, found))
            seconds = time.perf_counter() - start
            print(f"{number + 1}/{len(chosen)} {network.name} {optimizer}: {found} {seconds:.1f} s", file=sys.stderr)


def retry(chosen: Sequence[AnyNetwork]) -> None:
    """Give SGD two more rates and more steps where Adam trained and SGD did not, three times; the best row counts."""
    rows = results.read(results.OUTCOMES)
    for network in chosen:
        mine = [row for row in rows if row["name"] == network.name]
        adam = any(row["trained"] == "1" for row in mine if row["optimizer"] == "adam")
        sgd = [row for row in mine if row["optimizer"] == "sgd"]
        if not adam or any(row["trained"] == "1" for row in sgd):
            continue
        tried = {row["lr"] for row in sgd}
        for number, (_, rates) in enumerate(CHANCES):
            if tried & {f"{rate:.5g}" for rate in rates[network.family]}:
                continue
            found = another_chance(network, number)
            results.append(results.OUTCOMES, _row(network, "sgd", found))
            print(f"{network.name} sgd again: {found}", file=sys.stderr)
            if found.trained:
                break


def _row(network: AnyNetwork, optimizer: str, found: Outcome) -> dict[str, object]:
    return {
        "name": network.name, "family": network.family, "depth": network.depth, "half": network.half,
        "optimizer": optimizer, "trained": int(found.trained), "share": found.share, "steps": found.steps,
        "lr": found.lr,
    }  # fmt: skip


def main() -> None:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("command", choices=("list", "train", "retry", "measure", "judge", "fit"))
    parser.add_argument("--part", default="1/1", help="which part of how many, such as 2/4")
    parser.add_argument("--set", default="main", choices=tuple(SETS), help="which networks")
    parser.add_argument("--reverse", action="store_true", help="from the end, beside a run from the beginning")
    parser.add_argument("--optimizer", default="both", choices=("both", *OPTIMIZERS), help="measure with this one")
    arguments = parser.parse_args()
    part, num_parts = (int(number) for number in arguments.part.split("/"))
    chosen = SETS[arguments.set]()[part - 1 :: num_parts]
    if arguments.reverse:
        chosen = chosen[::-1]
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*lr_scheduler.*")
    if arguments.command == "list":
        for network in chosen:
            print(network.half, network.family, network.depth, network.name)
    elif arguments.command == "train":
        train(chosen)
    elif arguments.command == "retry":
        retry(chosen)
    elif arguments.command == "measure":
        from benchmarks.calibration.measuring import measure_all

        measure_all(chosen, OPTIMIZERS if arguments.optimizer == "both" else (arguments.optimizer,))
    elif arguments.command == "judge":
        from benchmarks.calibration.predictors import judge_all

        judge_all([network for make in SETS.values() for network in make()])
    else:
        from benchmarks.calibration.fit import fit

        fit()


if __name__ == "__main__":
    main()
