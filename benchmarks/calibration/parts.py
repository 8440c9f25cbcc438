"""What becomes of a network of which the optimizer holds a part only, and how much of the gradient that part has.

`python -m benchmarks.calibration.parts` writes parts.csv: twenty networks that train as a whole, each with five parts
of its parameters under Adam for at most 300 steps. The level of GS502 is read off it.
"""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

import torch
from torch import nn

from benchmarks.calibration.cases import cases
from benchmarks.calibration.networks import Network, networks
from benchmarks.calibration.training import MORE_STEPS, PASS_SHARE, RATES, WINDOW, _endless, _span

TABLE = Path(__file__).with_name("parts.csv")
COLUMNS = ("name", "part", "followed_share", "loss_share", "steps")
PER_FAMILY = 5
LOOKED_AT = 10
"""The last step at which a watched run looks."""
PARTS = ("head", "not head", "first", "last half", "first half")


def part_of(parameters: list[nn.Parameter], part: str) -> list[nn.Parameter]:
    """Return some of the parameters, in the model's order: the last matrix and what follows, the first two, halves."""
    last = max(i for i, parameter in enumerate(parameters) if parameter.dim() > 1)
    half = len(parameters) // 2
    cut = {"head": (last, None), "not head": (0, last), "first": (0, 2), "last half": (half, None)}
    start, stop = cut.get(part, (0, half))
    return parameters[start:stop]


def train(network: Network, part: str) -> dict[str, object]:
    """Train a part of a network until it passes or for 300 steps; return its row."""
    subject = network.subject()
    model = subject.model.to(getattr(torch, network.dtype))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    held = part_of(parameters, part)
    step = torch.optim.Adam(held, RATES["adam"][network.family][0])
    torch.manual_seed(0)
    guess, _ = _span(network)
    losses: list[float] = []
    followed, share = 0.0, math.inf
    for number, batch in zip(range(MORE_STEPS), _endless(list(subject.batches), network.dtype), strict=False):
        model.zero_grad()
        loss = subject.loss(subject.call(batch), batch)
        loss.backward()
        if number == LOOKED_AT or not losses:
            followed = _square(held) / _square(parameters)
        step.step()
        losses.append(loss.item())
        share = sum(losses[-WINDOW:]) / len(losses[-WINDOW:]) / guess
        if len(losses) > WINDOW and share < PASS_SHARE:
            break
    return dict(zip(COLUMNS, (network.name, part, f"{followed:.2g}", f"{share:.3f}", len(losses)), strict=True))


def _square(parameters: list[nn.Parameter]) -> float:
    return sum(float(p.grad.double().norm()) ** 2 for p in parameters if p.grad is not None)


def chosen() -> list[Network]:
    """Return some networks of every family that Adam trains as a whole."""
    trained = {case.name for case in cases() if case.optimizer == "adam" and case.truth == "trained"}
    shuffled = [network for network in networks() if network.name in trained]
    random.Random(3).shuffle(shuffled)
    families = dict.fromkeys(network.family for network in shuffled)
    return [n for family in families for n in [m for m in shuffled if m.family == family][:PER_FAMILY]]


def main() -> None:
    """Train every part of every chosen network and write the table."""
    with TABLE.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for network in chosen():
            table.writerows(train(network, part) for part in PARTS)


if __name__ == "__main__":
    main()
