"""Networks over vectors of the third blind test: flows, hypernetworks, experts, weight-tied loops and other kinds.

Shapes: B samples, D width, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

IN, CLASSES = 48, 10
Act = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Act] = {
    "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": F.gelu, "selu": F.selu,
    "softmax": lambda x: x.softmax(-1), "softmax-batch": lambda x: x.softmax(0), "identity": lambda x: x,
}  # fmt: skip


class Stack(nn.Module):
    """A plain stack whose activations take turns, with what may be done to its input, weights and outputs.

    Args:
        acts: Names of activations, used in turn.
        scale: Factor on the input.
        he: Whether the maps are drawn as He et al. say.
        norm: A norm in front of the stack: "", layer, batch.
        wrap: none, weight (weight norm with gains of `gain`) or spectral (spectral norm).
        bias: Added to every bias of the layer in the middle.
        cut: Layer behind which the stream is detached; -1 for none.
        frozen: Number of first layers that do not learn.
    """

    def __init__(
        self, depth: int, acts: Sequence[str], *, scale: float = 1.0, he: bool = False, norm: str = "",
        wrap: str = "none", gain: float = 1.0, bias: float = 0.0, cut: int = -1, frozen: int = 0, width: int = IN,
    ) -> None:  # fmt: skip
        super().__init__()
        maps: list[nn.Module] = []
        for number in range(depth):
            layer = nn.Linear(IN if number == 0 else width, width)
            if he:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
            if number == depth // 2 and bias:
                nn.init.constant_(layer.bias, bias)
            layer.requires_grad_(number >= frozen)
            if wrap == "weight":
                parametrizations.weight_norm(layer)
                nn.init.constant_(layer.get_parameter("parametrizations.weight.original0"), gain)
            elif wrap == "spectral":
                parametrizations.spectral_norm(layer)
            maps.append(layer)
        self.maps = nn.ModuleList(maps)
        self.acts = [ACTIVATIONS[acts[number % len(acts)]] for number in range(depth)]
        norms: dict[str, Callable[[], nn.Module]] = {
            "": nn.Identity, "layer": lambda: nn.LayerNorm(IN), "batch": lambda: nn.BatchNorm1d(IN),
        }  # fmt: skip
        self.norm, self.scale, self.cut = norms[norm](), scale, cut
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x_BD: Tensor) -> Tensor:
        """Classify."""
        x = self.norm(x_BD * self.scale)
        for number, (layer, act) in enumerate(zip(self.maps, self.acts, strict=True)):
            x = act(layer(x))
            x = x.detach() if number == self.cut else x
        out: Tensor = self.head(x)
        return out


class Normless(nn.Module):
    """Residual layers without a norm: as Fixup starts them, or as He does."""

    def __init__(self, depth: int, how: str) -> None:
        super().__init__()
        first = [nn.Linear(IN, IN) for _ in range(depth)]
        second = [nn.Linear(IN, IN) for _ in range(depth)]
        self.first, self.second = nn.ModuleList(first), nn.ModuleList(second)
        self.shifts = nn.Parameter(torch.zeros(depth, 2))
        self.head = nn.Linear(IN, CLASSES)
        for one, two in zip(first, second, strict=True):
            nn.init.kaiming_normal_(one.weight, nonlinearity="relu")
            nn.init.kaiming_normal_(two.weight, nonlinearity="relu")
            with torch.no_grad():
                if how == "fixup":
                    one.weight.mul_(depth**-0.5)
                    two.weight.zero_()
                elif how == "faint":
                    two.weight.mul_(1e-3)

    def forward(self, x_BD: Tensor) -> Tensor:
        """Classify."""
        x = x_BD
        for one, two, shift in zip(self.first, self.second, self.shifts, strict=True):
            x = x + two(F.relu(one(x + shift[0])) + shift[1])
        out: Tensor = self.head(x)
        return out


class Hyper(nn.Module):
    """A small net gives the weights of every layer of a larger one, from a code of each layer."""

    def __init__(self, depth: int, size: float) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(depth, 8))
        first, last = nn.Linear(8, 32), nn.Linear(32, IN * IN)
        self.giver = nn.Sequential(first, nn.Tanh(), last)
        with torch.no_grad():
            last.weight.normal_(std=size / math.sqrt(32 * 0.4 * IN))
            last.bias.zero_()
        self.head = nn.Linear(IN, CLASSES)

    def forward(self, x_BD: Tensor) -> Tensor:
        """Classify."""
        x = x_BD
        for weight in self.giver(self.codes).view(-1, IN, IN):
            x = F.relu(x @ weight.mT)
        out: Tensor = self.head(x)
        return out


class Experts(nn.Module):
    """Layers of experts, chosen softly or by the best one, with a skip or without."""

    def __init__(self, depth: int, *, hard: bool, skip: bool, sharp: float = 1.0, experts: int = 4) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(IN, experts) for _ in range(depth))
        self.layers = nn.ModuleList(nn.ModuleList(nn.Linear(IN, IN) for _ in range(experts)) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(IN) if skip else nn.Identity() for _ in range(depth))
        self.head = nn.Linear(IN, CLASSES)
        self.hard, self.skip, self.sharp = hard, skip, sharp

    def forward(self, x_BD: Tensor) -> Tensor:
        """Classify."""
        x = x_BD
        for gate, layers, norm in zip(self.gates, self.layers, self.norms, strict=True):
            h = norm(x)
            share = (gate(h) * self.sharp).softmax(-1)
            if self.hard:
                best = share.argmax(-1)
                share = F.one_hot(best, share.shape[-1]) * share
            assert isinstance(layers, nn.ModuleList)
            f = torch.stack([F.relu(layer(h)) for layer in layers], -1) @ share.unsqueeze(-1)
            x = x + f.squeeze(-1) if self.skip else f.squeeze(-1)
        out: Tensor = self.head(x)
        return out


class Tied(nn.Module):
    """One map used again and again, with the input put in each time, as an equilibrium is unrolled."""

    def __init__(self, loops: int, gain: float, *, damped: bool = False, norm: bool = False) -> None:
        super().__init__()
        self.inward, self.around = nn.Linear(IN, IN), nn.Linear(IN, IN)
        nn.init.orthogonal_(self.around.weight, gain)
        self.norm = nn.LayerNorm(IN) if norm else nn.Identity()
        self.head, self.loops, self.damped = nn.Linear(IN, CLASSES), loops, damped

    def forward(self, x_BD: Tensor) -> Tensor:
        """Classify."""
        u = self.inward(x_BD)
        z = torch.zeros_like(u)
        for _ in range(self.loops):
            new = self.norm(torch.tanh(self.around(z) + u))
            z = 0.5 * (z + new) if self.damped else new
        out: Tensor = self.head(z)
        return out


class Waves(nn.Module):
    """Sinusoidal layers over coordinates (SIREN), started as its authors say or not."""

    def __init__(self, depth: int, w0: float, *, right: bool, width: int = 48) -> None:
        super().__init__()
        sizes = [2] + [width] * depth
        maps = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self.maps = nn.ModuleList(maps)
        self.w0, self.head = w0, nn.Linear(width, 1)
        if right:
            for number, layer in enumerate(maps):
                bound = 1 / 2 if number == 0 else math.sqrt(6 / width) / w0
                nn.init.uniform_(layer.weight, -bound, bound)

    def forward(self, x_B2: Tensor) -> Tensor:
        """Give a height for every coordinate."""
        x = x_B2
        for layer in self.maps:
            x = torch.sin(self.w0 * layer(x))
        out: Tensor = self.head(x).squeeze(-1)
        return out


class Flow(nn.Module):
    """Affine couplings (RealNVP); gives the latent and the log-determinant."""

    def __init__(self, depth: int, *, bounded: bool, gain: float = 1.0, dims: int = 8) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(dims // 2, 32), nn.ReLU(), nn.Linear(32, dims)) for _ in range(depth)
        )
        with torch.no_grad():
            for net in self.nets:
                net[2].weight.mul_(gain)  # type: ignore[index]
        self.bounded = bounded

    def forward(self, x_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Map to the latent."""
        x, total = x_BD, torch.zeros(len(x_BD))
        for net in self.nets:
            kept, moved = x.chunk(2, -1)
            scale, shift = net(kept).chunk(2, -1)
            scale = torch.tanh(scale) if self.bounded else scale
            x = torch.cat((moved * scale.exp() + shift, kept), -1)
            total = total + scale.sum(-1)
        return x, total


class Twins(nn.Module):
    """One encoder for two views; scores of every pair."""

    def __init__(self, depth: int, act: str, factor: float, *, normalised: bool = True) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(IN, IN) for _ in range(depth))
        self.act, self.factor, self.normalised = ACTIVATIONS[act], factor, normalised

    def encode(self, x_BD: Tensor) -> Tensor:
        """Encode one view."""
        x = x_BD
        for layer in self.maps[:-1]:
            x = self.act(layer(x))
        x = self.maps[-1](x)
        return F.normalize(x, dim=-1) if self.normalised else x

    def forward(self, one_BD: Tensor, two_BD: Tensor) -> Tensor:
        """Score pairs."""
        return self.encode(one_BD) @ self.encode(two_BD).mT * self.factor


class Neck(nn.Module):
    """An autoencoder of vectors through a few numbers."""

    def __init__(self, depth: int, neck: int, act: str, *, squash: float = 1.0) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(IN, IN) for _ in range(depth))
        self.narrow, self.wide = nn.Linear(IN, neck), nn.Linear(neck, IN)
        self.up = nn.ModuleList(nn.Linear(IN, IN) for _ in range(depth))
        self.out, self.act, self.squash = nn.Linear(IN, IN), ACTIVATIONS[act], squash

    def forward(self, x_BD: Tensor) -> Tensor:
        """Rebuild."""
        x = x_BD
        for layer in self.down:
            x = self.act(layer(x))
        x = self.wide(self.narrow(x) * self.squash)
        for layer in self.up:
            x = self.act(layer(x))
        out: Tensor = self.out(x)
        return out
