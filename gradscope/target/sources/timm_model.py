"""timm:NAME, any model of timm's registry."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from gradscope.errors import TargetError
from gradscope.target.draws import Draws
from gradscope.target.infer.scratch import scratch_copy
from gradscope.target.infer.trial import Outcome, attempt
from gradscope.target.libraries import call_library, import_library
from gradscope.target.nearest import did_you_mean
from gradscope.target.source import Built, Offer, Source, Trial
from gradscope.target.sources.pictures import affordable, ascending, picture
from gradscope.target.spec import Spec

SMALL_SIDES = (64, 96, 128, 160, 192, 224, 256)
"""Sides to build a model of a fixed picture size with, until one works."""


def open_source(spec: Spec, arguments: Mapping[str, Any], seed: int | None) -> Source:
    """Find a timm model; weights are never fetched.

    A model whose picture size is fixed when it is built (most Vision Transformers) is built for small pictures, unless
    the user says ``-a img_size=…``.
    """
    timm = import_library("timm", spec.text)
    name = spec.place
    if "hf-hub:" in name or "hf_hub:" in name:
        raise TargetError(
            f"{spec.text} would be downloaded.", rule="Nothing is fetched from a hub; name an architecture."
        )
    if not timm.is_model(name.split(".")[0]):
        raise TargetError(f"timm has no model {name!r}.", rule=did_you_mean(name, timm.list_models()))
    settled: dict[str, Any] = dict(arguments)

    def make(extra: Mapping[str, Any]) -> nn.Module:
        model: nn.Module = call_library(
            timm.create_model,
            spec.text,
            lambda: _known(timm, name),
            model_name=name,
            pretrained=False,
            **settled,
            **extra,
        )
        return model

    def build() -> Built:
        draws = Draws()
        for side in _sides_to_build_for(timm, name, settled):
            draws.again()
            try:
                model = make({"img_size": side})
            except TargetError:
                continue
            after = Draws()
            if not _runs(model, side):
                continue
            after.again()
            note = (
                f"Built for pictures of {side} x {side} so that a step stays short; -a img_size=… gives another size."
            )
            return Built(model, notes=(note,))
        draws.again()
        return Built(make({}))

    return Source(spec.text, build, library_inputs=_inputs)


def _sides_to_build_for(timm: Any, name: str, arguments: Mapping[str, Any]) -> Iterator[int]:
    configuration = timm.get_pretrained_cfg(name.split(".", maxsplit=1)[0])
    if configuration is not None and configuration.fixed_input_size and "img_size" not in arguments:
        yield from (side for side in SMALL_SIDES if side < max(configuration.input_size[1:]))


def _runs(model: nn.Module, side: int) -> bool:
    """Whether a copy of a model takes pictures of the size it was built for; some fix more sizes than that one."""
    copy = scratch_copy(model)
    if copy is None:
        return True
    configuration = getattr(model, "pretrained_cfg", None) or {}
    channels = _channels(model) or (configuration.get("input_size") or (3,))[0]
    return attempt(copy.eval(), picture(channels)(1, side), gradients=False).worked


def _known(timm: Any, name: str) -> Iterable[str]:
    """Arguments of the model classes in the file of the model's entry point."""
    module = sys.modules[timm.model_entrypoint(name.split(".", maxsplit=1)[0]).__module__]
    names = ["num_classes", "in_chans", "drop_rate", "img_size"]
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module.__name__:
            names += list(inspect.signature(value).parameters)
    return dict.fromkeys(names)


def _inputs(model: nn.Module, trial: Trial) -> tuple[Offer, Outcome | None] | None:
    configuration = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None) or {}
    channels, *sizes = configuration.get("input_size") or (3, 224, 224)
    full = _built_for(model) or max(sizes)
    sides = (full,) if _built_for(model) else tuple(ascending(SMALL_SIDES, full))
    return affordable(picture(_channels(model) or channels), sides, trial, "normally distributed pictures")


def _built_for(model: nn.Module) -> int:
    """The picture size that a model was built for, where it has one."""
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return max(size) if isinstance(size, tuple | list) else size if isinstance(size, int) else 0


def _channels(model: nn.Module) -> int:
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    return first.in_channels if first is not None else 0
