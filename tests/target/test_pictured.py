"""Inputs for models that take pictures in other forms than whole ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gradscope.target import load
from gradscope.target.hf.names import named
from gradscope.target.hf.read import read_facts
from gradscope.target.infer.axes import with_axes
from gradscope.target.infer.documented import documented
from gradscope.target.infer.guess import BATCH, Guess
from gradscope.target.infer.roles import Hints
from gradscope.target.infer.unpacked import by_unpacking
from tests.target import pictured

FILE = Path(pictured.__file__)
HINTS = Hints(vocab=50, width=8, length=100, channels=3, side=32, classes=4)


def loaded(name: str):
    subject = load(f"{FILE}:{name}")
    return subject, next(iter(subject.batches))


@pytest.mark.parametrize(("name", "shape"), [("PatchTower", (8 * 16, 48)), ("FoldedTower", (8, 16, 3, 14, 14))])
def test_a_grid_says_how_many_patches_there_are(name, shape):
    batch = loaded(name)[1]
    pixels, grids = batch.values() if isinstance(batch, dict) else batch
    assert tuple(pixels.shape) == shape
    assert grids.tolist() == [[1, 4, 4]] * 8
    assert int(grids.prod(-1).sum()) == 8 * 16


def test_patches_in_one_axis_become_those_of_each_sample():
    flat = Guess("patches", (BATCH, 16, 3, 14, 14))  # an axis fewer when it is made
    assert with_axes(flat, 5, HINTS) == Guess("float", (BATCH, 16, 3, 14, 14))
    assert with_axes(flat, 4, HINTS) is None


def test_pictures_that_are_put_one_above_the_other_share_the_height():
    assert [tuple(tensor.shape) for tensor in loaded("Prompted")[1]] == [(8, 3, 48, 48)] * 3


def test_the_width_of_a_picture_is_no_width_of_vectors():
    def forward(mask):
        """See.

        Args:
            mask (`torch.Tensor` of shape `(batch_size, num_channels, height, width)`): What to see.
        """

    sizes = {"width": 64, "side": 32, "channels": 3}
    assert documented(forward, sizes)["mask"].shape == (BATCH, 3, 32, 32)


def test_a_mask_that_is_told_to_be_a_picture_is_one():
    facts = read_facts(SimpleNamespace(image_size=32, hidden_size=64))
    assert named("prompt_masks", 16, facts, Guess("float", (BATCH, 3, 32, 32))).shape == (BATCH, 3, 32, 32)
    assert named("prompt_masks", 16, facts, Guess("float", (BATCH, 16))) == Guess("mask", (BATCH, 16))


def test_a_data_class_tells_the_shapes_of_its_fields():
    batch = loaded("Molecule")[1]
    (atoms,) = batch.values() if isinstance(batch, dict) else batch
    assert (tuple(atoms.positions_of.shape), tuple(atoms.charge_of.shape)) == ((8, 12, 3), (8, 12))


def test_axes_are_told_by_the_names_that_a_shape_is_unpacked_into():
    (pixels,) = loaded("Cubes")[1]
    assert tuple(pixels.shape) == (8, 2, 10, 10, 3)


def test_the_names_of_usual_axes_tell_nothing_more():
    def unpack(x):
        batch, channels, height, width = x.shape
        return batch * channels * height * width

    with pytest.raises(ValueError, match="not enough values") as raised:
        unpack(torch.zeros(2, 3, 32))
    assert not list(by_unpacking(raised.value, (("x", Guess("float", (BATCH, 3, 32))),), HINTS))
