"""User models whose forward takes what no plain tensor is: objects, lists, optional inputs, masks, other types."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FromDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.conv, self.flat = nn.Conv2d(1, 4, 7, 7), nn.Linear(4 * 2 * 2, 32)  # 16 x 16
        self.head = nn.Linear(32, 5)

    def forward(self, batch):
        seen = self.flat(self.conv(batch["picture"]).flatten(1))
        return self.head(self.words(batch["words"]).mean(1) + seen)


class Observation(NamedTuple):
    pixels: Tensor
    speed: Tensor
    goal: Tensor


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.feel = nn.Linear(7, 32)
        self.goals = nn.Embedding(6, 32)
        self.act = nn.Linear(32, 4)

    def forward(self, seen: Observation):
        return self.act(self.see(seen.pixels) + self.feel(seen.speed) + self.goals(seen.goal))


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.edges, self.out = nn.Linear(16, 32), nn.Linear(5, 32), nn.Linear(32, 4)

    def forward(self, data):
        h = self.nodes(data.x)
        source, target = data.edge_index
        h = h + torch.zeros_like(h).index_add(0, target, h[source] * self.edges(data.edge_attr))
        return self.out(h)


class Graph2(Graph):
    def forward(self, x, edge_index, edge_attr=None):
        h = self.nodes(x)
        if edge_attr is not None:
            h = h.index_add(0, edge_index[1], self.edges(edge_attr))
        return self.out(h + torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]]))


class Clouds(nn.Module):
    def __init__(self):
        super().__init__()
        self.point, self.out = nn.Linear(3, 32), nn.Linear(32, 10)

    def forward(self, clouds: list[Tensor]):
        assert all(cloud.dim() == 2 for cloud in clouds)
        return self.out(torch.stack([self.point(cloud).relu().mean(0) for cloud in clouds]))


class Either(nn.Module):
    def __init__(self):
        super().__init__()
        self.text, self.sound = nn.Embedding(64, 32), nn.Conv1d(40, 32, 5, 2, 2)
        self.head = nn.Linear(32, 64)

    def forward(self, text_ids: Tensor | None = None, mel: Tensor | None = None, return_hidden: bool = False):
        parts = [] if text_ids is None else [self.text(text_ids)]
        parts += [] if mel is None else [self.sound(mel).transpose(1, 2)]
        return self.head(torch.cat(parts, 1))


class Conditioned(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Conv1d(2, 16, 3, padding=1), nn.Conv1d(16, 2, 3, padding=1)
        self.noise, self.kinds = nn.Linear(1, 16), nn.Embedding(10, 16)

    def forward(self, x, *, sigma: Tensor, class_labels: Tensor | None = None):
        h = self.inp(x) + self.noise(sigma[:, None])[:, :, None]
        return self.out(h if class_labels is None else h + self.kinds(class_labels)[:, :, None])


class Padded(nn.Module):
    """True in the mask means padding: the other way round, no score gets a gradient."""

    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.head = nn.Embedding(64, 32), nn.Linear(32, 96), nn.Linear(32, 3)

    def forward(self, src, src_mask):
        x = self.words(src)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / 32**0.5).masked_fill(src_mask[:, None], -1e9)
        return self.head((x + scores.softmax(-1) @ v).mean(1))


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(64, 32, dtype=torch.cfloat), nn.Linear(32, 11)

    def forward(self, iq):
        return self.out(self.inp(iq).abs())


class Double(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 2)).double()

    def forward(self, x):
        return self.body(x)


class Skeletons(nn.Module):
    def __init__(self, num_joints: int = 17, in_feats: int = 3):
        super().__init__()
        self.num_joints, self.in_feats = num_joints, in_feats
        self.norm, self.out = nn.BatchNorm1d(num_joints * in_feats), nn.Linear(in_feats, 60)

    def forward(self, x):
        """Classify clips.

        Args:
            x: skeletons of shape (batch, in_feats, frames, num_joints, persons)
        """
        n, c, t, v, m = x.shape
        x = self.norm(x.permute(0, 4, 3, 1, 2).reshape(n * m, v * c, t)).view(n, m, v, c, t)
        return self.out(x.mean((1, 2, 4)))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.bag = nn.Embedding(50, 16), nn.EmbeddingBag(80, 16)
        self.dense, self.out = nn.Linear(13, 16), nn.Linear(48, 1)

    def forward(self, user, dense, history, offsets):
        return self.out(F.relu(torch.cat([self.user(user), self.dense(dense), self.bag(history, offsets)], -1)))


class Captioner(nn.Module):
    """A decoder that sees another model's hidden states where it is given some."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(64, 32), nn.Linear(32, 64)
        self.decoder = nn.ModuleDict({"cross_attn": nn.MultiheadAttention(32, 4, batch_first=True)})

    def forward(self, input_ids: Tensor, encoder_hidden_states: Tensor | None = None):
        x = self.words(input_ids)
        if encoder_hidden_states is not None:
            x = x + self.decoder["cross_attn"](x, encoder_hidden_states, encoder_hidden_states)[0]
        return self.head(x)
