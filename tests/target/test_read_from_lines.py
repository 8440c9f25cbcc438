"""Inputs that the failing line of a forward tells: a key, a whole shape, the factors that maps are flattened by."""

import pytest

from gradscope.target import load
from gradscope.target.infer import search

KEYS = """
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleDict({"user": nn.Embedding(30, 8), "item": nn.Embedding(20, 8)})
            self.dense = nn.Linear(13, 8)

        def forward(self, features):
            parts = [self.tables[key](features[key]) for key in self.tables]
            return torch.stack([*parts, self.dense(features["dense"])], 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables, self.head = Tables(), nn.Linear(24, 1)

        def forward(self, features):
            return self.head(self.tables(features).flatten(1))
"""
SHAPE = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 8, 3)

        def forward(self, image, coords):
            batch, _, height, width = image.shape
            assert height == 96 and width == 96, f"Input size ({height}*{width}) doesn't match model (96*96)"
            assert coords.shape == (batch, 2), "coords must be lat/lon"
            return self.conv(image).mean((2, 3)) + coords.sum(1, keepdim=True)
"""
FLATTENED = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.pool = nn.Conv3d(3, 4, 3, padding=1), nn.MaxPool3d((2, 4, 4), padding=(0, 1, 1))
            self.fc = nn.Linear(4 * 8 * 9 * 9, 5)

        def forward(self, clip):
            x = self.pool(self.conv(clip))
            return self.fc(x.view(-1, 4 * 8 * 9 * 9))
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (KEYS, "features = (user: 8 integers below 2, item: 8 integers below 2, dense: 8x13 normal numbers)"),
        (SHAPE, "image = 8x4x96x96 normal numbers, coords = 8x2 normal numbers"),
        (FLATTENED, "clip = 8x3x16x36x36 normal numbers"),
    ],
)
def test_the_failing_line_is_read(write, monkeypatch, code, words):
    monkeypatch.setattr(search, "MOST_TRIALS", 10)
    assert load(write(code)).inputs_origin.text.startswith(f"{words}, inferred")
