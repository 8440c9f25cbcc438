"""Run the calibration: python -m benchmarks.calibration train | measure | judge | fit [--part 1/4].

``train`` decides which networks train (most of the time), ``measure`` watches each for eleven steps and keeps the
recordings, ``judge`` reads predictors off the recordings, ``fit`` derives thresholds and writes docs/calibration.md.
Every command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings

import torch

from benchmarks.calibration import results
from benchmarks.calibration.networks import Network, networks
from benchmarks.calibration.training import outcome

OPTIMIZERS = ("adam", "sgd")


def train(chosen: list[Network]) -> None:
    """Train every network that has no outcome yet, once with each optimizer."""
    known = {(row["name"], row["optimizer"]) for row in results.read(results.OUTCOMES)}
    for number, network in enumerate(chosen):
        for optimizer in OPTIMIZERS:
            if (network.name, optimizer) in known:
                continue
            start = time.perf_counter()
            found = outcome(network, optimizer)
            row = {
                "name": network.name, "family": network.family, "depth": network.depth, "half": network.half,
                "optimizer": optimizer, "trained": int(found.trained), "share": found.share, "steps": found.steps,
                "lr": found.lr,
            }  # fmt: skip
            results.append(results.OUTCOMES, row)
            seconds = time.perf_counter() - start
            print(f"{number + 1}/{len(chosen)} {network.name} {optimizer}: {found} {seconds:.1f} s", file=sys.stderr)


def main() -> None:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("command", choices=("list", "train", "measure", "judge", "fit"))
    parser.add_argument("--part", default="1/1", help="which part of how many, such as 2/4")
    parser.add_argument("--optimizer", default="both", choices=("both", *OPTIMIZERS), help="measure with this one")
    arguments = parser.parse_args()
    part, num_parts = (int(number) for number in arguments.part.split("/"))
    chosen = networks()[part - 1 :: num_parts]
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*lr_scheduler.*")
    if arguments.command == "list":
        for network in chosen:
            print(network.half, network.family, network.depth, network.name)
    elif arguments.command == "train":
        train(chosen)
    elif arguments.command == "measure":
        from benchmarks.calibration.measuring import measure_all

        measure_all(chosen, OPTIMIZERS if arguments.optimizer == "both" else (arguments.optimizer,))
    elif arguments.command == "judge":
        from benchmarks.calibration.predictors import judge_all

        judge_all(chosen)
    else:
        from benchmarks.calibration.fit import fit

        fit()


if __name__ == "__main__":
    main()
