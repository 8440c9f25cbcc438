"""What a factor in the way of the signal does: where it stands, which norm comes behind it, how large it is.

`python -m benchmarks.calibration.scales` writes scales.csv, one row for each network and optimizer: how the better of
a few rates ended, what was measured at the first and the last of eleven watched steps, and the verdict. The law of size
(metrics/law.py) and the level of GS101 are checked against it. It goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.calibration import results
from benchmarks.calibration.measuring import OPTIMIZERS
from benchmarks.calibration.strangers import Stranger
from benchmarks.calibration.training import BEGUN_SHARE, Outcome, train_once
from gradscope.metrics.facts import Facts
from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.rules import diagnose
from gradscope.variants.tasks import noisy_templates

TABLE = Path(__file__).with_name("scales.csv")
WIDTH = 48
RATES = {"adam": (1e-3, 3e-4), "sgd": (0.05, 0.005, 0.5, 5e-4, 5e-5, 5e-6)}
FACTORS = (1e-6, 1e-4, 1e-2, 1e2, 1e4, 1e6)
NORMS: dict[str, Callable[[], nn.Module]] = {
    "layer": lambda: nn.LayerNorm(WIDTH, eps=1e-5), "layer-6": lambda: nn.LayerNorm(WIDTH, eps=1e-6),
    "rms-6": lambda: nn.RMSNorm(WIDTH, eps=1e-6), "batch": lambda: nn.BatchNorm1d(WIDTH, eps=1e-5), "none": nn.Identity,
}  # fmt: skip


class Times(nn.Module):
    """A factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Multiply."""
        return x * self.factor


class Scaled(nn.Module):
    """Layers with a factor at one place or spread over all.

    Args:
        wiring: plain (a norm at the end), each (a norm behind every map), pre (x + f(norm x), a norm at the end) or
            sum (x + f(x), a norm at the end).
        norm: Which norm.
        place: first, middle, last or spread.
        factor: The factor.
        depth: Layers.
        bias: Whether maps have a bias.
    """

    def __init__(self, wiring: str, norm: str, place: str, factor: float, depth: int, bias: bool) -> None:
        super().__init__()
        maps = [nn.Linear(WIDTH, WIDTH, bias=bias) for _ in range(depth)]
        self.maps = nn.ModuleList(maps)
        for layer in maps:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        at = {"first": 0, "middle": depth // 2, "last": depth - 1}.get(place)
        factors = [factor ** (1 / depth) if at is None else factor if i == at else 1.0 for i in range(depth)]
        self.scales = nn.ModuleList(Times(one) if one != 1.0 else nn.Identity() for one in factors)
        self.norms = nn.ModuleList(NORMS[norm if wiring in ("each", "pre") else "none"]() for _ in range(depth))
        self.last = NORMS["none" if wiring == "each" else norm]()
        self.head, self.wiring = nn.Linear(WIDTH, 10), wiring

    def forward(self, x_BD: Tensor) -> Tensor:
        """Classify."""
        x = x_BD
        for layer, scale, norm in zip(self.maps, self.scales, self.norms, strict=True):
            if self.wiring == "plain":
                x = scale(layer(x).relu())
            elif self.wiring == "each":
                x = norm(scale(layer(x))).relu()
            else:
                x = scale(x + 0.5 * layer(norm(x)).relu())
        out: Tensor = self.head(self.last(x))
        return out


def scaled() -> Iterator[Stranger]:
    """List the networks."""
    task = noisy_templates((WIDTH,), 10, 64)
    kinds: list[tuple[str, str, str, int, bool]] = [
        *(("plain", norm, place, 8, True) for norm in ("layer", "batch", "none")
          for place in ("first", "middle", "spread", "last")),
        *(("plain", norm, "middle", 8, bias) for norm in ("layer-6", "rms-6") for bias in (True, False)),
        *(("each", norm, place, 8, True) for norm in ("layer", "layer-6", "batch") for place in ("middle", "spread")),
        ("each", "layer", "middle", 8, False),
        *((wiring, "layer", place, 8, True) for wiring in ("pre", "sum") for place in ("first", "middle", "spread")),
        ("plain", "layer", "spread", 20, False), ("plain", "layer", "spread", 20, True),
        ("sum", "none", "spread", 8, True),
    ]  # fmt: skip
    for (wiring, norm, place, depth, bias), factor in product(kinds, FACTORS):
        make = partial(Scaled, wiring, norm, place, factor, depth, bias)
        label = f"{wiring}-{norm}-{place}-{factor:g}-{'bias' if bias else 'no-bias'}"
        yield Stranger("mlp", label, depth, make, "pytorch", task, 1)


def best(network: Stranger, optimizer: str) -> Outcome:
    """Train at one rate after the other until one passes; return the best."""
    found: list[Outcome] = []
    for rate in RATES[optimizer]:
        found.append(train_once(network, optimizer, rate))
        if found[-1].trained:
            break
    return min(found, key=lambda one: one.share)


def row(network: Stranger, optimizer: str, found: Outcome) -> dict[str, object]:
    """Measure a network and put it beside how it ended."""
    recording = measure(network.subject(), ProbeSettings(optimizer=optimizer, lr=OPTIMIZERS[optimizer], device="cpu"))
    facts, diagnosis = Facts(recording), diagnose(recording)
    ended = "trained" if found.trained else "slow" if found.share < BEGUN_SHARE else "failed"
    numbers: dict[str, object] = {}
    for when, profile in zip(("first", "last"), facts.judged_profiles, strict=False):
        numbers |= {f"{when}_decades": profile.decades, f"{when}_scale_free": profile.scale_free_decades}
    names = [f"{when}_{what}" for when in ("first", "last") for what in ("decades", "scale_free")]
    return {
        "network": network.label, "layers": network.depth, "optimizer": optimizer, "ended": ended,
        "share": found.share, "steps": found.steps, "lr": found.lr, **{name: numbers.get(name) for name in names},
        "verdict": diagnosis.verdict,
    }  # fmt: skip


def main() -> None:
    """Fill the table."""
    torch.set_num_threads(1)
    known = {(one["network"], one["layers"], one["optimizer"]) for one in results.read(TABLE)}
    for network, optimizer in product(scaled(), RATES):
        if (network.label, str(network.depth), optimizer) not in known:
            results.append(TABLE, row(network, optimizer, best(network, optimizer)))


if __name__ == "__main__":
    main()
