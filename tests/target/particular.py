"""User models that are particular about their inputs: they check them, loop over them, and take them in sets."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Points(nn.Module):
    def __init__(self):
        super().__init__()
        self.each, self.out = nn.Conv1d(3, 32, 1), nn.Linear(32, 4)

    def forward(self, cloud_of_sensor):
        _, _, width = cloud_of_sensor.shape
        assert width == 3, f"expected x, y and z, got {width}"
        return self.out(self.each(cloud_of_sensor.transpose(1, 2)).amax(-1))


class Columns(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 8) for rows in (10, 5, 24))
        self.out = nn.Linear(3 * 8 + 6, 2)

    def forward(self, kinds, amounts):
        if kinds.shape[-1] != len(self.tables):
            raise ValueError("wrong number of columns")
        parts = [table(kinds[:, i]) for i, table in enumerate(self.tables)]
        return self.out(torch.cat([*parts, amounts], -1))


class Bytes(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(4, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 8, 4, 2), nn.ReLU(), nn.Flatten())
        self.act = nn.Linear(8 * 9 * 9, 6)

    def forward(self, screen):
        assert screen.dtype == torch.uint8, "a screen is bytes"
        return self.act(self.see(screen / 255.0))


class Lengthwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.merge, self.block = nn.Linear(4 * 5, 16), 4

    def forward(self, signal):
        assert signal.ndim == 3, "samples, moments, features"
        if signal.size(1) % self.block != 0:
            raise ValueError("not a multiple")
        return self.merge(signal.reshape(len(signal), -1, self.block * signal.size(-1)))


class Triplet(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2), nn.Conv2d(4, 8, 5), nn.MaxPool2d(2), nn.Flatten())
        self.out = nn.Linear(8 * 4 * 4, 16)

    def forward(self, anchor, positive, negative):
        return tuple(self.out(self.see(view)) for view in (anchor, positive, negative))


class OneHot(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_kinds = 7
        self.inside, self.out = nn.Linear(40 + 7, 16), nn.Linear(16, 2)

    def forward(self, x, kind):
        return self.out(self.inside(torch.cat([x, F.one_hot(kind, self.num_kinds).float()], 1)))


class Beside(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.conv, self.out = nn.Linear(3 + 2, 8), nn.Conv2d(8, 8, 3, 1, 1), nn.Linear(8, 3)

    def forward(self, field, places):
        x = self.lift(torch.cat([field, places], -1)).permute(0, 3, 1, 2)
        return self.out((x + self.conv(x)).permute(0, 2, 3, 1))


class Core(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.read = nn.LSTMCell(12, 16), nn.Linear(16, 3)

    def forward(self, inputs, state, done):
        h, c = state
        outputs = []
        for x, ended in zip(inputs, done, strict=True):
            keep = 1.0 - ended.float().unsqueeze(-1)
            h, c = self.cell(x, (h * keep, c * keep))
            outputs.append(self.read(h))
        return torch.stack(outputs)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.see, self.kind, self.box = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 5), nn.Linear(8, 4)

    def forward(self, images, targets=None):
        seen = self.see(images).flatten(2).transpose(1, 2)
        if self.training and targets is None:
            raise ValueError("targets should be passed in training mode")
        kinds, boxes = self.kind(seen), self.box(seen).sigmoid()
        loss = images.new_zeros(())
        for scores, found, target in zip(kinds, boxes, targets or [], strict=False):
            loss = loss + F.cross_entropy(scores[: len(target["labels"])], target["labels"])
            loss = loss + F.l1_loss(found[: len(target["boxes"])], target["boxes"])
        return {"loss": loss}


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.fewer, self.letters = nn.Conv2d(1, 4, 3, 2, 1), nn.Linear(4 * 40, 29)

    def forward(self, mel, mel_lengths, targets, target_lengths):
        x = self.fewer(mel.unsqueeze(1)).permute(0, 2, 1, 3).flatten(2)
        scores = self.letters(x).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(scores, targets, mel_lengths // 2, target_lengths)


class Flagged(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.out = nn.Linear(6, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor, usable: Tensor):
        return self.out(self.inside(x).tanh().masked_fill((~usable).unsqueeze(-1), 0.0))


class Sets(nn.Module):
    def __init__(self):
        super().__init__()
        self.each, self.whole = nn.Linear(5, 16), nn.Linear(16, 3)

    def forward(self, sets, n_elements):
        inside = torch.arange(sets.size(1)) < n_elements[:, None]
        return self.whole((self.each(sets).tanh() * inside[..., None]).sum(1) / n_elements[:, None])


class Timed(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = 16
        self.place, self.time, self.out = nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x, timesteps):
        angle = timesteps[:, None].float() / 10 ** torch.arange(self.width // 2)
        return self.out((self.place(x) + self.time(torch.cat([angle.sin(), angle.cos()], -1))).tanh())


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.projections, self.out = nn.ModuleList(nn.Linear(24, 24) for _ in range(3)), nn.Linear(24, 24)

    def forward(self, query, key, value):
        q, k, v = (layer(x) for layer, x in zip(self.projections, (query, key, value), strict=True))
        return self.out((q @ k.transpose(-2, -1)).softmax(-1) @ v)


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.sides, self.out = nn.ModuleList(nn.Conv2d(c, 8, 1) for c in (4, 8, 16)), nn.Conv2d(8, 2, 1)

    def forward(self, features):
        maps = [side(feature) for side, feature in zip(self.sides, features, strict=True)]
        return self.out(sum(maps))


class Labelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Conv2d(3, 5, 3, 1, 1)

    def forward(self, pixels, mask_labels):
        return F.cross_entropy(self.see(pixels), mask_labels)


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.items, self.prices, self.out = nn.Embedding(50, 16), nn.Linear(4, 16), nn.Linear(16, 2)

    def forward(self, **batch):
        return self.out(self.items(batch["item"]) + self.prices(batch["price_features"]))
