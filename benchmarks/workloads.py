"""The networks on which the cost of watching is measured: plain PyTorch, no gradscope inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Task:
    """A model with one batch and what is to be made small.

    Attributes:
        model: The model, on its device.
        inputs: What it is called with.
        num_classes: Of its logits; labels count through them.
    """

    model: nn.Module
    inputs: torch.Tensor
    num_classes: int

    def loss(self) -> torch.Tensor:
        """Run the model and return its loss."""
        return self.loss_of(self.model(self.inputs))

    def loss_of(self, output: torch.Tensor) -> torch.Tensor:
        """Return the loss of an output of the model."""
        logits = output.flatten(0, -2)
        return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device) % self.num_classes)


Builder = Callable[[torch.device], Task]


@dataclass(frozen=True)
class Workload:
    """One network with one batch and its loss.

    Attributes:
        name: Short name in tables.
        what: Shapes in words.
        build: Makes the task on a device.
    """

    name: str
    what: str
    build: Builder


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

    def __init__(self, vocab: int, width: int, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(blocks)
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


class LlamaBlock(nn.Module):
    """Llama's block: RMSNorm, rotary attention, a gated MLP, no biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both branches."""
        h = self.norm1(x)
        shape = (*x.shape[:2], self.heads, -1)
        q, k, v = (part(h).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Turn queries or keys (B, heads, T, D) by their position (Su 2021)."""
    tokens, half = x.shape[2], x.shape[3] // 2
    speeds = 10_000.0 ** -(torch.arange(half, device=x.device) / half)
    angles = torch.arange(tokens, device=x.device)[:, None] * speeds
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


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


def _gpt2(device: torch.device) -> Task:
    model = TokenTransformer(512, 384, (Block(384, 6, True) for _ in range(12)))
    return Task(model.to(device), torch.randint(0, 512, (8, 128), device=device), 512)


def _llama(device: torch.device) -> Task:
    model = TokenTransformer(256, 256, (LlamaBlock(256, 4) for _ in range(12)))
    return Task(model.to(device), torch.randint(0, 256, (1, 16), device=device), 256)


def _vit(device: torch.device) -> Task:
    return Task(ImageTransformer(384, 12, 6, 16).to(device), torch.randn(4, 3, 160, 160, device=device), 100)


def _resnet(device: torch.device) -> Task:
    from gradscope.variants import build

    return Task(build("resnet50", width=64).to(device), torch.randn(8, 3, 64, 64, device=device), 10)


def _lstm(device: torch.device) -> Task:
    return Task(LSTMModel().to(device), torch.randn(8, 32, 512, device=device), 100)


def _mlp(device: torch.device) -> Task:
    return Task(ResidualMLP(1000).to(device), torch.randn(64, 32, device=device), 10)


WORKLOADS = (
    Workload("gpt2", "12 blocks x 384, 8 x 128 tokens", _gpt2),
    Workload("resnet50", "8 x 3 x 64 x 64, the paper's width", _resnet),
    Workload("vit-s", "12 blocks x 384, 4 images of 10 x 10 patches", _vit),
    Workload("lstm", "2 x 512, 8 x 32 steps", _lstm),
    Workload("llama-tiny-batch", "12 blocks x 256, 1 x 16 tokens", _llama),
    Workload("mlp-1000", "1,000 residual blocks x 64, batch 64", _mlp),
)
