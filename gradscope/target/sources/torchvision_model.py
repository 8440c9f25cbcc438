"""torchvision:NAME, any of torchvision's model builders."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from gradscope.errors import TargetError
from gradscope.target.infer.trial import Outcome
from gradscope.target.libraries import call_library, import_library
from gradscope.target.nearest import did_you_mean
from gradscope.target.source import Built, Offer, Source, Trial
from gradscope.target.sources.pictures import SEED, affordable, picture
from gradscope.target.spec import Spec
from gradscope.target.subject import Batch

SIDES = (64, 96, 128, 224, 256, 299, 300, 320)
"""Sides to try: the smallest at which five halvings leave a picture, up to what fixed-size models want."""
DETECTION_SIDES = {"min_size": 160, "max_size": 192}
"""What detectors resize their pictures to, instead of 800: the same network, in a second instead of a minute."""
VIT_SIDE = 64


def open_source(spec: Spec, arguments: Mapping[str, Any], seed: int | None) -> Source:
    """Find the builder of a torchvision model; weights are never fetched."""
    models = import_library("torchvision.models", spec.text)
    names = models.list_models()
    if spec.place not in names:
        raise TargetError(f"torchvision has no model {spec.place!r}.", rule=did_you_mean(spec.place, names))
    builder = models.get_model_builder(spec.place)
    chosen, notes = _with_small_pictures(builder, arguments)
    given = {**_without_weights(builder), **chosen}

    def build() -> Built:
        return Built(call_library(builder, spec.text, lambda: _known(builder), **given))

    return Source(spec.text, build, library_inputs=_inputs, notes=notes)


def _without_weights(builder: Any) -> dict[str, Any]:
    names = inspect.signature(builder).parameters
    return {name: None for name in ("weights", "weights_backbone") if name in names}


def _with_small_pictures(builder: Any, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Let models that fix their picture size when built take small pictures, unless the user chose."""
    module = builder.__module__.rpartition(".")[2]
    small: dict[str, Any] = {}
    if ".detection." in builder.__module__ and "ssd" not in module:
        small = DETECTION_SIDES
    elif module == "vision_transformer":
        small = {"image_size": VIT_SIDE if "_14" not in builder.__name__ else VIT_SIDE // 14 * 14}
    small = {key: value for key, value in small.items() if key not in arguments}
    words = ", ".join(f"{key}={value}" for key, value in small.items())
    notes = (f"Built with {words} so that a step stays short; -a gives other values.",) if small else ()
    return {**small, **arguments}, notes


def _known(builder: Any) -> Iterable[str]:
    """Arguments of the builder and of the classes of its file, to which it hands on what it does not know."""
    names = list(inspect.signature(builder).parameters)
    for value in vars(sys.modules[builder.__module__]).values():
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == builder.__module__:
            names += list(inspect.signature(value).parameters)
    return dict.fromkeys(names)


def _inputs(model: nn.Module, trial: Trial) -> tuple[Offer, Outcome | None] | None:
    home = type(model).__module__
    if ".detection." in home:
        return affordable(_detection, (96, 300, 320), trial, "pictures with two boxes each,")
    if ".optical_flow." in home:
        return affordable(_frame_pair, (128,), trial, "pairs of pictures")
    if ".video." in home:
        return affordable(_clip, (64, 112, 224), trial, "clips of 16 pictures")
    fixed = getattr(model, "image_size", None)
    sides = (fixed,) if isinstance(fixed, int) else SIDES
    return affordable(picture(3), sides, trial, "normally distributed pictures")


def _detection(batch_size: int, side: int) -> Batch:
    """Pictures in 0..1, each with two boxes, their classes, masks and key points; a detector reads what it needs."""
    generator = torch.Generator().manual_seed(SEED)
    boxes = torch.tensor([[0.1, 0.1, 0.6, 0.7], [0.3, 0.4, 0.9, 0.9]]) * side
    masks = torch.zeros(2, side, side, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
        mask[top:bottom, left:right] = 1
    points = torch.cat([torch.rand(2, 17, 2, generator=generator) * side / 2 + side / 4, torch.ones(2, 17, 1)], -1)
    target = {"boxes": boxes, "labels": torch.tensor([1, 1]), "masks": masks, "keypoints": points}
    pictures = [torch.rand(3, side, side, generator=generator) for _ in range(batch_size)]
    return pictures, [{key: value.clone() for key, value in target.items()} for _ in pictures]


def _frame_pair(batch_size: int, side: int) -> Batch:
    generator = torch.Generator().manual_seed(SEED)
    first, second = torch.rand(2, batch_size, 3, side, side, generator=generator) * 2 - 1
    return {"image1": first, "image2": second, "num_flow_updates": 3}


def _clip(batch_size: int, side: int) -> Batch:
    return (torch.randn(batch_size, 3, 16, side, side, generator=torch.Generator().manual_seed(SEED)),)
