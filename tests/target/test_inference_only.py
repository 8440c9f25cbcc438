"""A forward that turns gradients off is said to be for inference only, before any input is looked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradscope.errors import InferenceOnlyError
from gradscope.target import load
from gradscope.target.inference_only import switch_of


class Decorated(nn.Linear):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class Bare(nn.Linear):
    @torch.inference_mode
    def forward(self, x):
        return super().forward(x)


class Inside(nn.Linear):
    def forward(self, x):
        """Compute."""
        doubled = x * 2
        with torch.set_grad_enabled(False):
            return super().forward(doubled)


class Partly(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            shift = x.mean()
        return super().forward(x - shift)


class Either(nn.Linear):
    def forward(self, x):
        if self.training:
            return super().forward(x)
        with torch.no_grad():
            return super().forward(x)


class Named(nn.Linear):
    @torch.inference_mode(mode=False)
    def forward(self, x):
        return super().forward(x)


class Early(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            if not self.training:
                return super().forward(x)
            scale = x.std()
        return super().forward(x / scale)


class Enabled(nn.Linear):
    @torch.inference_mode(False)
    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize(
    ("cls", "switch"),
    [
        (Decorated, "@torch.no_grad()"),
        (Bare, "@torch.inference_mode"),
        (Inside, "with torch.set_grad_enabled(False)"),
        (Partly, ""),
        (Either, ""),
        (Early, ""),
        (Enabled, ""),
        (Named, ""),
        (nn.Linear, ""),
    ],
)
def test_what_turns_gradients_off_is_read_off_the_source(cls, switch):
    assert switch_of(cls) == switch


CODE = """
class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 2)

    @torch.no_grad()
    def forward(self, session):
        return self.out(session.frames)
"""


@pytest.mark.parametrize("more", ["", "def batch(): return torch.ones(4, 3)\n"])
def test_the_error_says_so_in_one_line(write, more):
    with pytest.raises(InferenceOnlyError) as caught:
        load(f"{write(CODE.replace('session.frames', 'session') + more)}:Scorer")
    assert caught.value.what == (
        "The forward of Scorer in user_model.py runs without gradients (@torch.no_grad()): it is for inference only."
    )
