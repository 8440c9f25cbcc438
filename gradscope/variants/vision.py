"""The same blocks over patches of an image (Dosovitskiy 2020, ViT).

Shapes: B batch, H x W pixels, T patches plus the class token, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from gradscope.variants.attention import FirstValues
from gradscope.variants.build_transformer import check_sizes
from gradscope.variants.initialise import GPT2_STD, initialise
from gradscope.variants.norms import make_norm
from gradscope.variants.plan import require
from gradscope.variants.stack import only_stack
from gradscope.variants.streams import SINGLE, STREAM_ENDS
from gradscope.variants.transformer import make_block
from gradscope.variants.wiring import Wiring


@dataclass(frozen=True)
class VisionWiring(Wiring):
    """A Transformer over patches.

    Attributes:
        image: Height and width of the images.
        patch: Height and width of a patch.
        classes: Classes of the task.
    """

    image: int = 32
    patch: int = 8
    classes: int = 10


class PatchEmbedding(nn.Module):
    """Images to patch vectors behind a learnt class token, plus learnt positions."""

    def __init__(self, wiring: VisionWiring) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, wiring.d_model, wiring.patch, stride=wiring.patch)
        num_tokens = 1 + (wiring.image // wiring.patch) ** 2
        self.class_token = nn.Parameter(GPT2_STD * torch.randn(1, 1, wiring.d_model))
        self.positions = nn.Parameter(torch.empty(num_tokens, wiring.d_model))

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Cut, project, place."""
        patches_BTD = self.patches(x_BCHW).flatten(2).transpose(1, 2)
        first = self.class_token.expand(patches_BTD.shape[0], -1, -1)
        return torch.cat([first, patches_BTD], dim=1) + self.positions


class VisionTransformer(nn.Module):
    """Images (B x 3 x H x W) to logits (B x classes), read off the class token."""

    def __init__(self, wiring: VisionWiring) -> None:
        super().__init__()
        self.num_layers = wiring.layers
        stack = only_stack(wiring)
        first_values = FirstValues() if wiring.value_residual else None
        self.embed = PatchEmbedding(wiring)
        self.blocks = nn.ModuleList(
            make_block(wiring, stack, number, first_values) for number in range(1, wiring.layers + 1)
        )
        self.norm = make_norm(wiring.norm, wiring.d_model, wiring.eps) if wiring.has_final_norm else None
        self.head = nn.Linear(wiring.d_model, wiring.classes)
        self._first_values = first_values
        self._ends, self._num_streams = STREAM_ENDS.get(wiring.arrangement, SINGLE), wiring.streams

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Classify."""
        streams = self._ends.enter(self.embed(x_BCHW), self._num_streams)
        for block in self.blocks:
            streams = block(streams)
        if self._first_values is not None:
            self._first_values.forget()
        logits: torch.Tensor = self.head(self._ends.leave(streams, self.norm)[:, 0])
        return logits


def build_vision_transformer(wiring: VisionWiring) -> nn.Module:
    """Build a Transformer over patches from its wiring.

    Raises:
        TargetError: The sizes do not go together.
    """
    check_sizes(wiring)
    require(
        wiring.patch >= 1 and wiring.image % wiring.patch == 0,
        f"an image of {wiring.image} does not divide into patches of {wiring.patch}.",
        "image must be a multiple of patch.",
    )
    model = VisionTransformer(wiring)
    initialise(model, wiring, [(model.blocks, only_stack(wiring))])
    return model
