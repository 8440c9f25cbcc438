"""A model that returns its loss, and calls one that does, has its stream end before it."""

import torch
from torch import nn

import gradscope


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc(self.norm(x))


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Block() for _ in range(2)), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)
        return nn.functional.cross_entropy(logits, targets), logits


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tower, self.text = nn.Sequential(nn.Linear(8, 16), Block(), Block(), Block()), Text()

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.text(self.tower(x), targets)


def test_the_loss_that_a_part_returns_is_no_station() -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(16, 8), torch.randint(5, (16,)))
    recording = gradscope.inspect(Both(), inputs, lambda out, _: out[0]).recording
    assert recording.tables["stream"]["name"][-2:] == ["text.layers.0", "text.layers.1"]
    assert min(recording.tables["stream_stats"]["num_elements"]) == 256
