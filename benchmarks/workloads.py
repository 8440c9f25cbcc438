"""The networks on which the cost of watching is measured: plain PyTorch, no gradscope inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

Builder = Callable[[torch.device], tuple[nn.Module, Callable[[], torch.Tensor]]]


@dataclass(frozen=True)
class Workload:
    """One network with one batch and its loss.

    Attributes:
        name: Short name in tables.
        what: Shapes in words.
        build: Makes model and inputs on a device.
        repeats: Pairs of steps to take on the CPU.
    """

    name: str
    what: str
    build: Builder
    repeats: int = 15


class Attention(nn.Module):
    """Causal self-attention over (B, T, D)."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """A pre-norm block: x + attn(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both branches."""
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TokenTransformer(nn.Module):
    """A decoder over token ids."""

    def __init__(self, vocab: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads, True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits (B, T, vocab)."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ImageTransformer(nn.Module):
    """A ViT with mean pooling."""

    def __init__(self, width: int, layers: int, heads: int, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.ModuleList(Block(width, heads, False) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (B, 100)."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class LSTMModel(nn.Module):
    """Two LSTM layers of width 512 and a head."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (B, T, 100)."""
        return self.head(self.lstm(x)[0])


class ResidualMLP(nn.Module):
    """Many small residual blocks: the structure dominates."""

    def __init__(self, blocks: int, width: int = 64) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(32, width), nn.Linear(width, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(blocks)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (B, 10)."""
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def _classify(model: nn.Module, inputs: torch.Tensor, classes: int) -> Callable[[], torch.Tensor]:
    def loss() -> torch.Tensor:
        logits = model(inputs).flatten(0, -2)
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device) % classes)

    return loss


def _tokens(vocab: int, width: int, layers: int, heads: int, shape: tuple[int, int]) -> Builder:
    def build(device: torch.device) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        model = TokenTransformer(vocab, width, layers, heads).to(device)
        return model, _classify(model, torch.randint(0, vocab, shape, device=device), vocab)

    return build


def _vit(device: torch.device) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model = ImageTransformer(384, 12, 6, 16).to(device)
    return model, _classify(model, torch.randn(4, 3, 160, 160, device=device), 100)


def _resnet(device: torch.device) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    from gradscope.variants import build

    model = build("resnet50").to(device)
    return model, _classify(model, torch.randn(8, 3, 64, 64, device=device), 10)


def _lstm(device: torch.device) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model = LSTMModel().to(device)
    return model, _classify(model, torch.randn(8, 32, 512, device=device), 100)


def _mlp(blocks: int) -> Builder:
    def build(device: torch.device) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        model = ResidualMLP(blocks).to(device)
        return model, _classify(model, torch.randn(64, 32, device=device), 10)

    return build


WORKLOADS = (
    Workload("gpt2", "12 blocks x 384, 8 x 128 tokens", _tokens(512, 384, 12, 6, (8, 128))),
    Workload("resnet50", "8 x 3 x 64 x 64, quarter width", _resnet),
    Workload("vit-s", "12 blocks x 384, 4 images of 10 x 10 patches", _vit),
    Workload("lstm", "2 x 512, 8 x 32 steps", _lstm),
    Workload("llama-tiny-batch", "12 blocks x 256, 1 x 16 tokens", _tokens(256, 256, 12, 4, (1, 16)), 30),
    Workload("mlp-1000", "1,000 residual blocks x 64, batch 64", _mlp(1000), 9),
)
