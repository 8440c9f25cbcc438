"""hf:DIR, a local directory, and hf:MODEL_TYPE[:CLASS], a tiny model of a type."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gradscope.errors import InputsError, TargetError
from gradscope.target.hf.guesses import feeds_several, guesses
from gradscope.target.hf.more import beside
from gradscope.target.hf.settings import attribute_name, refuse_unknown
from gradscope.target.hf.settle import settle
from gradscope.target.infer.search import search_inputs
from gradscope.target.infer.trial import Outcome
from gradscope.target.inputs.batches import Batches
from gradscope.target.libraries import call_library, import_library
from gradscope.target.nearest import did_you_mean
from gradscope.target.sandbox import surroundings
from gradscope.target.source import Built, Offer, Source, Trial
from gradscope.target.spec import Spec

WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model*.bin.index.json")


def open_source(spec: Spec, arguments: Mapping[str, Any], seed: int | None) -> Source:
    """Open a directory with a config.json, or a model type of transformers; code from a hub is never run."""
    transformers = import_library("transformers", spec.text)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    path = Path(spec.place)
    if path.is_dir():
        return _from_directory(transformers, path, spec, arguments)
    if path.exists():
        raise TargetError(
            f"{spec.place!r} is a file.", rule="hf: takes a directory with a config.json, or a model type."
        )
    return _from_type(spec, arguments)


def _from_type(spec: Spec, arguments: Mapping[str, Any]) -> Source:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if spec.place not in CONFIG_MAPPING_NAMES:
        is_hub = "/" in spec.place
        rule = "Nothing is fetched from a hub: download it, and name its directory." if is_hub else ""
        raise TargetError(
            f"{spec.place!r} is neither a directory nor a model type of transformers.",
            rule=rule or did_you_mean(spec.place, CONFIG_MAPPING_NAMES),
        )

    def build() -> Built:
        with surroundings(None), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settled = settle(spec.place, spec.attr, arguments, spec.text)
        inferred = settled.inferred
        offer = Offer(Batches(inferred.batch), inferred.origin) if inferred is not None else None
        return Built(
            settled.model, offer, notes=settled.notes, outcome=inferred.outcome if inferred is not None else None
        )

    return Source(spec.text, build)


def _from_directory(transformers: Any, path: Path, spec: Spec, arguments: Mapping[str, Any]) -> Source:
    config = _read_config(transformers, path)
    refuse_unknown(config, arguments)
    for key, value in arguments.items():
        owner, _, last = key.rpartition(".")
        setattr(getattr(config, owner) if owner else config, attribute_name(type(config), last), value)
    cls = _class_for(transformers, config, path)
    has_weights = any(next(path.glob(pattern), None) for pattern in WEIGHT_FILES)

    def build() -> Built:
        if has_weights and not arguments:
            model: nn.Module = call_library(
                cls.from_pretrained, spec.text, dict, pretrained_model_name_or_path=str(path), config=config,
                local_files_only=True, trust_remote_code=False,
            )  # fmt: skip
            return Built(model.train(), notes=(f"{cls.__name__} with the weights in {path.name}.",))
        return Built(call_library(cls, spec.text, dict, config=config), notes=(f"{cls.__name__} with random weights.",))

    def inputs(model: nn.Module, trial: Trial) -> tuple[Offer, Outcome | None] | None:
        for partial in (False, True) if feeds_several(cls) else (False,):
            try:
                first, extend = guesses(cls, config, partial=partial), functools.partial(beside, cls, config)
                found = search_inputs(model, lambda: None, spec.text, first, run=trial, extend=extend)
            except InputsError:
                continue
            return Offer(found.batch, found.origin), found.outcome
        return None

    return Source(spec.text, build, library_inputs=inputs, rebuilds=not has_weights)


def _read_config(transformers: Any, path: Path) -> Any:
    if not (path / "config.json").exists():
        raise TargetError(
            f"{str(path)!r} has no config.json.", rule="hf: takes a directory that save_pretrained() wrote."
        )
    try:
        content = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise TargetError(f"{path.name}/config.json cannot be read: {error}.") from error
    if isinstance(content, dict) and content.get("auto_map"):
        raise TargetError(
            f"{path.name} needs code of its own ({', '.join(content['auto_map'])}).",
            rule="Code that comes with weights is never run.",
            hint="Import the model in a Python file of your own, and inspect that.",
        )
    return call_library(
        transformers.AutoConfig.from_pretrained,
        str(path),
        dict,
        pretrained_model_name_or_path=str(path),
        local_files_only=True,
    )


def _class_for(transformers: Any, config: Any, path: Path) -> Any:
    for name in config.architectures or ():
        if (cls := getattr(transformers, name, None)) is not None:
            return cls
    from gradscope.target.hf.heads import classes_of

    classes = classes_of(config.model_type, type(config))
    if not classes:
        raise TargetError(f"{path.name}: transformers has no class for {config.model_type!r}.")
    return classes[0]
