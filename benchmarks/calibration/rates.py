"""Which learning rates small networks bear, and what their first ten steps show.

`python -m benchmarks.calibration.rates` writes rates.csv, one row for each network, optimizer and rate: how much of its
weights a step replaces (median over the matrices), the loss on the way, and the accuracy after 400 steps. The levels of
GS501 are read off it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

TABLE = Path(__file__).with_name("rates.csv")
LOOKED_AT = (0, 3, 9)
"""Steps whose updates and losses are kept, as a watched run keeps them."""
NUM_STEPS, BATCH, WIDTH = 400, 64, 64
RATES: dict[str, tuple[float, ...]] = {
    "adam": (1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0),
    "sgd": (1e-2, 0.1, 1.0, 3.0, 10.0, 100.0),
}


class PreNorm(nn.Module):
    """x + act(W LN(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream with the branch added."""
        branch: Tensor = self.layer(self.norm(x)).relu()
        return x + branch


class Words(nn.Module):
    """Two Pre-LN Transformer layers over eight tokens of four numbers each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(4, 32), nn.Parameter(0.1 * torch.randn(8, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8 * 32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        out: Tensor = self.head(self.layers(self.embed(x.view(-1, 8, 4)) + self.place).flatten(1))
        return out


def plain(act: type[nn.Module], depth: int, width: int = WIDTH, scale: float = 1.0, *, norm: bool = False) -> nn.Module:
    """Return a plain stack of `depth` layers, its weights times `scale`."""
    sizes = [32] + [width] * depth
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), *([nn.LayerNorm(n_out)] if norm else []), act()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def convolutions() -> nn.Module:
    """Return two convolutions and a head."""
    body = (nn.Conv1d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=1), nn.ReLU())
    return nn.Sequential(nn.Unflatten(1, (1, 32)), *body, nn.Flatten(), nn.Linear(16 * 32, 10))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "relu, 3 layers": lambda: plain(nn.ReLU, 3),
    "tanh, 6 layers": lambda: plain(nn.Tanh, 6),
    "layer norm, 6 layers": lambda: plain(nn.ReLU, 6, norm=True),
    "pre-norm residual, 7 blocks": lambda: nn.Sequential(
        nn.Linear(32, WIDTH), *(PreNorm() for _ in range(7)), nn.Linear(WIDTH, 10)
    ),
    "convolutions": convolutions,
    "transformer": Words,
    "relu, width 512": lambda: plain(nn.ReLU, 3, 512),
    "relu, a tenth of the weights": lambda: plain(nn.ReLU, 3, scale=0.1),
}


def train(build: Callable[[], nn.Module], optimizer: str, rate: float) -> dict[str, float]:
    """Train one network on a linear ten-class task that it can solve, and return what its row says."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(512, 32, generator=generator)
    y = (x @ torch.randn(32, 10, generator=generator)).argmax(1)
    torch.manual_seed(0)
    model = build()
    step_taker = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer](model.parameters(), lr=rate)
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    row: dict[str, float] = {}
    for step in range(NUM_STEPS):
        rows = torch.randint(0, 512, (BATCH,))
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        step_taker.zero_grad()
        loss.backward()
        before = [m.detach().clone() for m in matrices] if step in LOOKED_AT else []
        step_taker.step()
        if before:
            ratios = [float((a - m).norm() / a.norm()) for a, m in zip(before, matrices, strict=True)]
            row[f"update_{step}"], row[f"loss_{step}"] = median(ratios), float(loss)
    with torch.no_grad():
        row["accuracy"] = float((model(x).argmax(1) == y).float().mean())
    return row


def main() -> None:
    """Train all and write the table."""
    torch.set_num_threads(1)
    with TABLE.open("w", newline="") as file:
        columns = [f"{what}_{step}" for step in LOOKED_AT for what in ("update", "loss")]
        writer = csv.DictWriter(file, ["network", "optimizer", "rate", *columns, "accuracy"], lineterminator="\n")
        writer.writeheader()
        for name, build in NETWORKS.items():
            for optimizer, rates in RATES.items():
                for rate in rates:
                    values = {key: f"{value:.3g}" for key, value in train(build, optimizer, rate).items()}
                    writer.writerow({"network": name, "optimizer": optimizer, "rate": rate, **values})


if __name__ == "__main__":
    main()
