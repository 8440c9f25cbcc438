"""User models that take pictures in pieces, or structures, whose shapes have to agree."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor, nn


def _places(grids):
    """Return the place of every patch in its picture; the grids are read one by one, as such models do."""
    return torch.cat([torch.arange(int(t * h * w), device=grids.device) for t, h, w in grids.tolist()])


class PatchTower(nn.Module):
    """Patches of all pictures in one axis."""

    def __init__(self):
        super().__init__()
        self.embed, self.pos, self.out = nn.Linear(48, 32), nn.Embedding(64, 32), nn.Linear(32, 10)

    def forward(self, pixel_values, grid_thw):
        seen = self.out(self.embed(pixel_values) + self.pos(_places(grid_thw)))
        return torch.stack([patches.mean(0) for patches in seen.split(grid_thw.prod(-1).tolist())])


class FoldedTower(nn.Module):
    """Patches of each picture in a row of its own, each with its axes; the words on the grid name no number."""

    def __init__(self):
        super().__init__()
        self.embed, self.pos, self.out = nn.Conv2d(3, 32, 14, 14), nn.Embedding(64, 32), nn.Linear(32, 10)

    def forward(self, pixel_values: torch.Tensor, grid_thw: torch.LongTensor | None = None):
        """See.

        Args:
            pixel_values (`torch.Tensor` of shape `(batch_size, tokens, image_channels, patch_size, patch_size)`):
                The pictures.
            grid_thw (`torch.LongTensor` of shape `(num_images, 3)`, *optional*):
                The grids.
        """
        batch, tokens, channels, height, width = pixel_values.shape
        folded = pixel_values.reshape(batch * tokens, channels, height, width)
        return self.out(self.embed(folded).flatten(1) + self.pos(_places(grid_thw)))


class Prompted(nn.Module):
    """A picture below an example of it, each half as high as what the first layer takes, and a mask of the example."""

    def __init__(self):
        super().__init__()
        self.rows, self.columns = 96, 48
        self.see, self.hint = nn.Conv2d(3, 8, 16, 16), nn.Conv2d(3, 8, 16, 16)

    def forward(self, pixels, example_pixels, example_mask):
        """See.

        Args:
            example_mask (`torch.FloatTensor` of shape `(batch_size, num_channels, height, width)`): The mask.
        """
        both = torch.cat((example_pixels, pixels), dim=2)
        if both.shape[2] != self.rows or both.shape[3] != self.columns:
            raise ValueError(f"Size ({both.shape[2]}*{both.shape[3]}) does not match ({self.rows}*{self.columns}).")
        return self.see(both) + self.hint(torch.cat((example_mask, example_mask), dim=2))


@dataclass
class Atoms:
    """Atoms of a molecule.

    Args:
        positions_of: `(batch_size, num_atoms, 3)` where they are.
        charge_of: `(batch_size, num_atoms)` their charges.
    """

    positions_of: Tensor
    charge_of: Tensor


class Molecule(nn.Module):
    """Takes a data class whose docstring tells the shapes of its fields."""

    def __init__(self):
        super().__init__()
        self.num_atoms, self.features, self.out = 12, nn.Linear(4, 16), nn.Linear(12 * 16, 2)

    def forward(self, atoms: Atoms):
        merged = torch.cat([atoms.positions_of, atoms.charge_of.unsqueeze(-1)], -1)
        return self.out(torch.tanh(self.features(merged)).flatten(1))


class Cubes(nn.Module):
    """Folds patches of moments into vectors, as Inkling's tower does; only the names of its axes say what it takes."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(patch_size=10, temporal_patch_size=2, num_channels=3)
        self.first = nn.Linear(3 * 5 * 5, 16, bias=False)
        self.second = nn.Linear(16 * 2 * 2 * 2, 32, bias=False)

    def fold(self, x, time, side):
        B, T, H, W, C = x.shape
        x = x.reshape(B, T // time, time, H // side, side, W // side, side, C)
        return x.permute(0, 1, 3, 5, 2, 4, 6, 7).flatten(4)

    def forward(self, pixel_values):
        x = torch.relu(self.first(self.fold(pixel_values, 1, 5)))
        return self.second(self.fold(x, 2, 2)).reshape(len(pixel_values), 1, -1)
