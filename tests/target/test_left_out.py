"""Inputs that may be left out by the signature alone: numbers, keywords handed on, embedded text, lengths."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradscope.target.infer.layers import wanted_by
from gradscope.target.infer.roles import annotated
from gradscope.target.infer.search import infer_inputs

WIDTH, WORDS = 8, 20


class Patches(nn.Module):
    """Reduces tokens to a number of patches that it is told; both are used inside, and none has a usable default."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(
        self, input_ids: torch.Tensor, num_patches: int | None = None, patch_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Take the largest of every patch."""
        return self.out(self._reduced(self.embed(input_ids), num_patches, patch_ids))

    def _reduced(self, x: torch.Tensor, most: Any, patch_ids: Any) -> torch.Tensor:
        index = patch_ids.unsqueeze(-1).expand(-1, -1, x.shape[-1])
        zeros = torch.zeros((x.shape[0], most, x.shape[-1]))
        return zeros.scatter_reduce(src=x, dim=1, index=index, reduce="amax", include_self=False)


def test_a_number_that_may_be_left_out_and_is_used_is_a_number() -> None:
    batch = infer_inputs(Patches(), lambda: None, "it").batch
    assert type(batch["num_patches"]) is int
    assert int(batch["patch_ids"].max()) < batch["num_patches"]


def test_what_an_annotation_says_beside_none_counts() -> None:
    assert [g.value for g in annotated("num_patches", "int | None")] == [3]
    assert [g.value for g in annotated("scale", "Optional[float]")] == [0.5]
    assert list(annotated("x", "torch.Tensor | None")) == []


class Conditioned(nn.Module):
    """A layer that scales by a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.inner = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, condition: torch.Tensor | None = None, mask: Any = None) -> torch.Tensor:
        """Scale."""
        return x + self.inner(x) * (1 + self.gate(condition))


class Decoder(nn.Module):
    """Hands any keyword on to its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(WORDS, WIDTH), Conditioned()

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Embed and scale."""
        return self.layer(self.embed(input_ids), **kwargs)


def test_a_keyword_that_is_handed_on_to_a_layer_is_given() -> None:
    batch = infer_inputs(Decoder(), lambda: None, "it").batch
    assert set(batch) == {"input_ids", "condition"}
    assert batch["condition"].shape[-1] == WIDTH


class Embedded(nn.Module):
    """Takes the embedded text alone, though its signature begins with ids."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, input_ids: Any = None, inputs_embeds: Any = None) -> torch.Tensor:
        """Refuse ids."""
        if input_ids is not None:
            raise ValueError("`input_ids` is expected to be `None`")
        return self.layer(inputs_embeds)


class Unembedded(Embedded):
    """Has lost the embedding that its forward asks for."""

    def forward(self, input_ids: Any = None, inputs_embeds: Any = None) -> torch.Tensor:
        """Ask for it."""
        return self.layer(self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds)


def test_embedded_text_is_given_where_ids_are_refused_or_cannot_be_embedded() -> None:
    for model in (Embedded(), Unembedded()):
        batch = infer_inputs(model, lambda: None, "it").batch
        given = batch["inputs_embeds"] if isinstance(batch, dict) else batch[0]
        assert given.shape[-1] == WIDTH


class Packed(nn.Module):
    """Sounds one behind the other in one row, with the length of each."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, input_features: torch.Tensor, feature_lens: torch.Tensor | None = None) -> torch.Tensor:
        """Cut the row into sounds.

        Args:
            input_features: The sounds.
            feature_lens (`torch.LongTensor` of shape `(batch_size,)`): Length of each.
        """
        lengths = (feature_lens / 1).long()
        sounds = input_features.T.split(lengths.tolist(), dim=0)
        return self.conv(nn.utils.rnn.pad_sequence(sounds, batch_first=True).transpose(1, 2))


def test_samples_stand_in_one_row_where_their_lengths_cut_it() -> None:
    model = Packed()
    inferred = infer_inputs(model, lambda: None, "it")
    features, lengths = inferred.batch
    assert features.shape == (WIDTH, int(lengths.sum()))


def test_a_size_that_was_computed_with_tensors_is_a_number() -> None:
    layer = nn.Linear(WIDTH, WIDTH)
    layer.in_features = torch.tensor(WIDTH)  # type: ignore[assignment]
    assert all(type(dim) is int for guess in wanted_by(layer) for dim in guess.shape)
