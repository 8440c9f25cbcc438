"""Small networks of the second blind test, written after the first: again wirings that no rule was developed on.

Shapes: B samples, D width, C channels, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu6": F.relu6, "celu": F.celu, "hardswish": F.hardswish, "logsigmoid": F.logsigmoid, "sine": torch.sin,
    "squared-relu": lambda x: F.relu(x).square(), "arctan": torch.atan, "softshrink": F.softshrink,
}  # fmt: skip


class Chain(nn.Module):
    """Maps and an activation function in turn, with an RMSNorm after each or none."""

    def __init__(self, depth: int, activation: str, norm: bool = False, width: int = 48) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.RMSNorm(width) if norm else nn.Identity() for _ in range(depth))
        self.act = ACTIVATIONS[activation]
        self.head = nn.Linear(width, 10)

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Classify."""
        x = x_BD
        for layer, norm in zip(self.maps, self.norms, strict=True):
            x = self.act(norm(layer(x)))
        out: torch.Tensor = self.head(x)
        return out


class Joined(nn.Module):
    """Layers that keep the stream in unusual ways."""

    def __init__(self, depth: int, how: str, width: int = 48) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.more = nn.ModuleList(nn.Linear(2 * width if how == "concat" else width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)
        self.how = how

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Classify."""
        x = x_BD
        for number, (first, second, norm) in enumerate(zip(self.maps, self.more, self.norms, strict=True)):
            if self.how == "concat":
                x = second(torch.cat((x, F.relu(first(x))), -1))
            elif self.how == "variance-kept":
                x = 0.9 * x + 0.19**0.5 * second(F.gelu(first(x)))
            elif self.how == "every-third":
                h = second(F.relu(first(x)))
                x = x + h if number % 3 == 2 else h
            elif self.how == "post-norm":
                x = norm(x + second(F.relu(first(x))))
            elif self.how == "doubled":
                x = 2 * x + second(F.relu(first(norm(x))))
            else:
                x = x + second(torch.tanh(first(norm(x)))) * 8.0
        out: torch.Tensor = self.head(x)
        return out


class Pyramid(nn.Module):
    """Convolutions on 3 x 16 x 16 pictures: grouped, bottlenecks or squeezed channels."""

    def __init__(self, depth: int, kind: str, skip: bool, norm: bool, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, stride=4)
        blocks = []
        for _ in range(depth):
            if kind == "grouped":
                maps = [nn.Conv2d(channels, channels, 3, padding=1, groups=4), nn.Conv2d(channels, channels, 1)]
            else:
                maps = [nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 3, padding=1)]
            middle: list[nn.Module] = [nn.GroupNorm(1, channels)] if norm else []
            blocks.append(nn.Sequential(*middle, maps[0], nn.SiLU(), maps[1]))
        self.blocks, self.skip = nn.ModuleList(blocks), skip
        self.head = nn.Linear(channels, 10)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Classify."""
        x = self.stem(x_BCHW)
        for block in self.blocks:
            x = x + block(x) if self.skip else block(x)
        out: torch.Tensor = self.head(x.mean((2, 3)))
        return out


class Mix(nn.Module):
    """A token mixer without softmax, or with one key for all heads; a feed-forward part after it."""

    def __init__(self, tokens: int, width: int, how: str, place: str) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(width, width) for _ in range(3))
        self.shift = nn.Conv1d(width, width, 3, padding=1)
        self.gate = nn.Linear(tokens, tokens)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(4))
        self.how, self.place = how, place

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Mix tokens, then channels."""
        x = self._join(x_BTD, self._mix, 0)
        return self._join(x, lambda h: self.down(F.gelu(self.up(h))), 1)

    def _join(self, x: torch.Tensor, work: Callable[[torch.Tensor], torch.Tensor], at: int) -> torch.Tensor:
        before, after = self.norms[2 * at], self.norms[2 * at + 1]
        joined: torch.Tensor
        match self.place:
            case "sandwich":
                joined = x + after(work(before(x)))
            case "after":
                joined = x + after(work(x))
            case "post":
                joined = after(x + work(x))
            case "none":
                joined = work(before(x))
            case _:
                joined = x + work(before(x))
        return joined

    def _mix(self, h: torch.Tensor) -> torch.Tensor:
        if self.how == "linear":
            q, k = F.elu(self.one(h)) + 1, F.elu(self.two(h)) + 1
            out: torch.Tensor = q @ (k.mT @ self.three(h)) / h.shape[1]
            return out
        if self.how == "convolution":
            out = self.three(self.shift(h.mT).mT)
            return out
        if self.how == "spatial-gate":
            out = self.three(self.one(h) * self.gate(self.two(h).mT).mT)
            return out
        weights = torch.softmax(self.one(h) @ h.mT * h.shape[-1] ** -0.5, -1)
        out = self.three(weights @ h)
        return out


class Passes(nn.Module):
    """Token ids (B x T) to logits; the same block several times, or different ones."""

    def __init__(self, make: Callable[[], nn.Module], depth: int, shared: bool, width: int, tokens: int, vocab: int):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width), nn.Parameter(0.5 * torch.randn(tokens, width))
        self.blocks = nn.ModuleList([make()] if shared else [make() for _ in range(depth)])
        self.times = depth if shared else 1
        self.last, self.head = nn.RMSNorm(width), nn.Linear(width, vocab)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Predict."""
        x = self.words(ids_BT) + self.places
        for block in list(self.blocks) * self.times:
            x = block(x)
        out: torch.Tensor = self.head(self.last(x))
        return out


class Memory(nn.Module):
    """A state that is read out at the end: with a skip over time, a forget gate, or a norm."""

    def __init__(self, rule: str, gain: float, width: int = 32, vocab: int = 16) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.ins, self.turn, self.keep = (nn.Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        nn.init.orthogonal_(self.turn.weight, gain)
        nn.init.constant_(self.keep.bias, 2.0)
        self.rule = rule

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Read all, then answer."""
        h = torch.zeros(ids_BT.shape[0], self.head.in_features)
        for x in self.words(ids_BT).unbind(1):
            new = torch.tanh(self.ins(x) + self.turn(h))
            if self.rule == "skip":
                h = h + 0.3 * new
            elif self.rule == "forget":
                k = torch.sigmoid(self.keep(x))
                h = k * h + (1 - k) * new
            elif self.rule == "norm":
                h = self.norm(self.ins(x) + self.turn(h))
            else:
                h = new
        out: torch.Tensor = self.head(h)
        return out
