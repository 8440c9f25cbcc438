"""Small networks written for the blind test alone: wirings, activations and cells that no rule was developed on.

Shapes: B samples, D width, C channels, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

INITS: dict[str, Callable[[torch.Tensor], torch.Tensor] | None] = {
    "pytorch": None,
    "he": lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu"),
    "lecun": lambda w: nn.init.normal_(w, std=w[0].numel() ** -0.5),
    "xavier": nn.init.xavier_uniform_,
    "orthogonal": nn.init.orthogonal_,
    "small": lambda w: nn.init.normal_(w, std=0.02),
    "large": lambda w: nn.init.normal_(w, std=2.0 * w[0].numel() ** -0.5),
}
"""How maps are drawn; biases are zero except for PyTorch's own."""

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "silu": nn.SiLU, "elu": nn.ELU, "leaky": lambda: nn.LeakyReLU(0.2), "softplus": nn.Softplus, "selu": nn.SELU,
    "hardtanh": nn.Hardtanh, "softsign": nn.Softsign, "mish": nn.Mish,
}  # fmt: skip


def draw(model: nn.Module, init: str) -> nn.Module:
    """Draw every map of a model anew."""
    scheme = INITS[init]
    for module in model.modules():
        if scheme is not None and isinstance(module, nn.Linear | nn.Conv2d):
            scheme(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


class Bent(nn.Module):
    """A plain stack, with or without a norm, whose width may alternate."""

    def __init__(self, depth: int, activation: str, norm: bool = False, narrow: int = 0, width: int = 40) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number in range(depth):
            ins = narrow if narrow and number % 2 else width
            outs = narrow if narrow and not number % 2 else width
            layers += [nn.Linear(ins, outs), *([nn.LayerNorm(outs)] if norm else []), ACTIVATIONS[activation]()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(narrow if narrow and depth % 2 else width, 10)

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Classify."""
        out: torch.Tensor = self.head(self.body(x_BD))
        return out


class Wired(nn.Module):
    """Residual layers of two maps: x + f, half of it, relu of it, alpha times the skip, or a gated branch."""

    def __init__(self, depth: int, wiring: str, norm: bool = False, width: int = 40) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(width, width * (2 if wiring == "glu" else 1)) for _ in range(depth))
        self.second = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(depth))
        self.head = nn.Linear(width, 10)
        self.wiring = wiring

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Classify."""
        x = x_BD
        for first, second, norm in zip(self.first, self.second, self.norms, strict=True):
            h = first(norm(x))
            f = second(F.glu(h) if self.wiring == "glu" else F.relu(h))
            if self.wiring == "half":
                x = 0.5 * (x + f)
            elif self.wiring == "relu-after":
                x = F.relu(x + f)
            elif self.wiring == "strong":
                x = x + 3.0 * f
            elif self.wiring == "attenuated":
                x = 0.7 * x + f
            else:
                x = x + f
        out: torch.Tensor = self.head(x)
        return out


class Picture(nn.Module):
    """Convolutions on 3 x 16 x 16 pictures: plain, separable with a skip, or dense (concatenating)."""

    def __init__(self, depth: int, kind: str, norm: str = "none", channels: int = 12) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.kind = kind
        grow = 6 if kind == "dense" else 0
        blocks = []
        for number in range(depth):
            ins = channels + grow * number
            outs = grow or channels
            maps: list[nn.Module] = [nn.Conv2d(ins, outs, 3, padding=1)]
            if kind == "separable":
                maps = [nn.Conv2d(ins, ins, 5, padding=2, groups=ins), nn.Conv2d(ins, outs, 1)]
            norms: dict[str, list[nn.Module]] = {
                "none": [], "instance": [nn.InstanceNorm2d(outs, affine=True)], "group": [nn.GroupNorm(3, outs)]
            }  # fmt: skip
            blocks.append(nn.Sequential(*maps, *norms[norm], nn.ReLU()))
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(channels + grow * depth, 10)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Classify."""
        x = self.stem(x_BCHW)
        for block in self.blocks:
            y = block(x)
            x = torch.cat((x, y), 1) if self.kind == "dense" else x + y if self.kind == "separable" else y
        out: torch.Tensor = self.head(x.mean((2, 3)))
        return out


class Mixer(nn.Module):
    """Mixes tokens by a matrix and channels by a map, in turn (MLP-Mixer), with or without the skip."""

    def __init__(self, tokens: int, width: int, skip: bool, norm: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.skip = float(skip)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Mix both ways."""
        mixed = self.tokens(self.norms[0](x_BTD).mT).mT
        x = x_BTD + mixed if self.skip else mixed
        f: torch.Tensor = self.channels(self.norms[1](x))
        return x + f if self.skip else f


class Attend(nn.Module):
    """Hand-written attention and feed-forward, with a factor on logits and branches, and a gate in place of a skip."""

    def __init__(self, width: int, logit_factor: float, branch: float, norm: str, gate: bool) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.n1, self.n2 = (nn.LayerNorm(width) if norm != "none" else nn.Identity() for _ in range(2))
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(2)) if gate else None
        self.factor, self.branch, self.post = logit_factor * width**-0.5, branch, norm == "post"

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Attend, then think."""
        x = self._join(x_BTD, self._attention, self.n1, 0)
        return self._join(x, lambda h: self.down(F.gelu(self.up(h))), self.n2, 1)

    def _join(
        self, x: torch.Tensor, work: Callable[[torch.Tensor], torch.Tensor], norm: nn.Module, number: int
    ) -> torch.Tensor:
        f = self.branch * work(x if self.post else norm(x))
        if self.gates is not None:
            gate = torch.sigmoid(self.gates[number](x))
            return gate * x + (1 - gate) * f
        out: torch.Tensor = norm(x + f) if self.post else x + f
        return out

    def _attention(self, h: torch.Tensor) -> torch.Tensor:
        weights = (self.a(h) @ self.b(h).mT * self.factor).softmax(-1)
        out: torch.Tensor = self.d(weights @ self.c(h))
        return out


class Words(nn.Module):
    """Token ids (B x T) to logits (B x T x vocab) through the given blocks."""

    def __init__(self, blocks: list[nn.Module], width: int, tokens: int, vocab: int, final_norm: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.places = nn.Parameter(torch.randn(tokens, width))
        self.blocks = nn.ModuleList(blocks)
        self.last = nn.LayerNorm(width) if final_norm else nn.Identity()
        self.head = nn.Linear(width, vocab)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Predict."""
        x = self.words(ids_BT) + self.places
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.head(self.last(x))
        return out


class Remember(nn.Module):
    """A recurrent network written by hand: a state, a map and a rule of update."""

    def __init__(self, rule: str, gain: float, width: int = 32, vocab: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.inward, self.around, self.gate = (nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, vocab)
        self.rule = rule
        if gain:
            nn.init.orthogonal_(self.around.weight, gain)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Read all, then answer."""
        x_BTD = self.words(ids_BT)
        h = torch.zeros_like(x_BTD[:, 0])
        for x in x_BTD.unbind(1):
            new = self.inward(x) + self.around(h)
            if self.rule == "relu":
                h = F.relu(new)
            elif self.rule == "leaky":
                h = 0.9 * h + 0.1 * torch.tanh(new)
            elif self.rule == "gated":
                z = torch.sigmoid(self.gate(x + h))
                h = z * h + (1 - z) * torch.tanh(new)
            else:
                h = torch.tanh(new)
        out: torch.Tensor = self.head(h)
        return out
