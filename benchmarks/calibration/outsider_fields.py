"""Networks over graphs, pictures and sequences of the third blind test.

Shapes: B samples, N nodes, C channels, T tokens, D width, K heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, VOCAB, TOKENS = 40, 16, 12


class Graph(nn.Module):
    """Message passing over one graph of N nodes: mean or sum of the neighbours, or attention over them."""

    links: Tensor

    def __init__(self, depth: int, how: str, links_NN: Tensor, *, skip: bool, features: int = 16) -> None:
        super().__init__()
        self.enter = nn.Linear(features, 32)
        self.maps = nn.ModuleList(nn.Linear(32, 32) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(32) if skip else nn.Identity() for _ in range(depth))
        self.scores = nn.ModuleList(nn.Linear(32, 2) for _ in range(depth))
        self.head, self.how, self.skip = nn.Linear(32, 10), how, skip
        self.register_buffer("links", links_NN)

    def forward(self, x_BNF: Tensor) -> Tensor:
        """Classify every node."""
        x = self.enter(x_BNF)
        for layer, norm, score in zip(self.maps, self.norms, self.scores, strict=True):
            h = layer(norm(x))
            if self.how == "attention":
                a, b = score(h).unbind(-1)
                pairs = F.leaky_relu(a.unsqueeze(-1) + b.unsqueeze(-2), 0.2)
                weights = pairs.masked_fill(self.links == 0, -1e9).softmax(-1)
            else:
                weights = self.links / (self.links.sum(-1, keepdim=True) if self.how == "mean" else 1.0)
            f = F.relu(weights @ h)
            x = x + f if self.skip else f
        out: Tensor = self.head(x)
        return out


class Ushape(nn.Module):
    """A U-Net that cleans a picture: halves and doubles the resolution, with or without what is handed across."""

    def __init__(self, levels: int, convs: int, *, across: bool, norm: bool, act: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()

        def part(ins: int) -> nn.Module:
            layers: list[nn.Module] = []
            for number in range(convs):
                layers += [nn.Conv2d(ins if number == 0 else 12, 12, 3, padding=1)]
                layers += [nn.GroupNorm(3, 12)] if norm else []
                layers += [act()]
            return nn.Sequential(*layers)

        self.down = nn.ModuleList(part(3 if number == 0 else 12) for number in range(levels))
        self.middle = part(12)
        self.up = nn.ModuleList(part(24 if across else 12) for _ in range(levels))
        self.out, self.across = nn.Conv2d(12, 3, 1), across

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Clean."""
        x, kept = x_BCHW, []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for part, other in zip(self.up, reversed(kept), strict=True):
            x = F.interpolate(x, scale_factor=2.0)
            x = part(torch.cat((x, other), 1) if self.across else x)
        out: Tensor = self.out(x)
        return out


class Photo(nn.Module):
    """Residual convolutions: with LayerScale, SkipInit, squeeze-and-excitation gates, or He's weights and no norm."""

    def __init__(self, depth: int, how: str, *, skip: bool = True, start: float = 0.0, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, stride=4)
        self.first = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth))
        self.second = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth))
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and module is not self.stem:
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        size = {"layerscale": (depth, channels, 1, 1), "skipinit": (depth, 1, 1, 1)}.get(how)
        self.scales = nn.Parameter(torch.full(size, start)) if size else None
        gates = [nn.Linear(channels, channels) for _ in range(depth)] if how == "gates" else []
        for gate in gates:
            nn.init.constant_(gate.bias, start)
        self.gates = nn.ModuleList(gates)
        self.norms = nn.ModuleList(
            nn.GroupNorm(4, channels) if how == "layerscale" else nn.Identity() for _ in range(depth)
        )
        self.head, self.skip = nn.Linear(channels, 10), skip

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Classify."""
        x = self.stem(x_BCHW)
        for number, (one, two, norm) in enumerate(zip(self.first, self.second, self.norms, strict=True)):
            f = two(F.relu(one(norm(x))))
            if self.scales is not None:
                f = f * self.scales[number]
            if len(self.gates):
                f = f * torch.sigmoid(self.gates[number](f.mean((2, 3))))[..., None, None]
            x = x + f if self.skip else f
        out: Tensor = self.head(x.mean((2, 3)))
        return out


class Look(nn.Module):
    """Pre-norm attention whose scores are wrought in different ways, and a feed-forward part."""

    def __init__(self, how: str, factor: float, *, norm: bool = True, experts: bool = False) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.ups = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(3 if experts else 1))
        self.downs = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(3 if experts else 1))
        self.router = nn.Linear(WIDTH, 3) if experts else None
        self.n1, self.n2 = (nn.LayerNorm(WIDTH) if norm else nn.Identity() for _ in range(2))
        self.how, self.factor = how, factor

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Attend, then think."""
        x: Tensor = x_BTD + self._attention(self.n1(x_BTD))
        h = self.n2(x)
        parts = [down(F.gelu(up(h))) for up, down in zip(self.ups, self.downs, strict=True)]
        if self.router is None:
            thought: Tensor = x + parts[0]
            return thought
        share, best = self.router(h).softmax(-1).topk(2, -1)
        weights = torch.zeros_like(self.router(h)).scatter(-1, best, share)
        return x + (torch.stack(parts, -1) @ weights.unsqueeze(-1)).squeeze(-1)

    def _attention(self, h_BTD: Tensor) -> Tensor:
        q, k, v = self.qkv(h_BTD).chunk(3, -1)
        if self.how == "cosine":
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        if self.how == "blind":
            q, k = q.detach(), k.detach()
        scores = q @ k.mT * self.factor
        far = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
        if self.how == "distance":
            scores = (scores / WIDTH**0.5 - 0.5 * far.abs()).masked_fill(far < 0, -torch.inf)
        axis = {"queries": -2, "batch": 0}.get(self.how, -1)
        weights = scores if self.how == "linear" else scores.softmax(axis)
        out: Tensor = self.out(weights @ v)
        return out


class Reader(nn.Module):
    """Token ids to logits through blocks, with factors on what goes in and what comes out.

    Args:
        blocks: The blocks.
        enter: Factor on the embeddings.
        leave: Factor on the logits.
        cap: Bound of the logits by tanh; 0 for none.
        halved: Whether the stream is halved after every block.
    """

    def __init__(
        self, blocks: list[nn.Module], *, enter: float = 1.0, leave: float = 1.0, cap: float = 0.0, halved: bool = False
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.places = nn.Parameter(torch.randn(TOKENS, WIDTH))
        self.blocks, self.last = nn.ModuleList(blocks), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)
        self.enter, self.leave, self.cap, self.halved = enter, leave, cap, halved

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Predict."""
        x = (self.words(ids_BT) + self.places) * self.enter
        for block in self.blocks:
            x = block(x) * (0.5 if self.halved else 1.0)
        out: Tensor = self.head(self.last(x)) * self.leave
        return self.cap * torch.tanh(out / self.cap) if self.cap else out


class Cells(nn.Module):
    """torch's own recurrent layers, several deep, with a bias on one gate."""

    def __init__(self, kind: str, layers: int, bias: float, *, size: float = 1.0) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, 32)
        self.net = getattr(nn, kind)(32, 32, layers, batch_first=True)
        gate = slice(32, 64)  # LSTM: forget; GRU: update
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                if name.startswith("bias_ih"):
                    parameter[gate].add_(bias)
                elif name.startswith("weight_hh"):
                    parameter.mul_(size)
        self.head = nn.Linear(32, VOCAB)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Read all, then answer."""
        states, _ = self.net(self.words(ids_BT))
        out: Tensor = self.head(states[:, -1])
        return out
