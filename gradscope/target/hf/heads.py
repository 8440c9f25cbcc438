"""The model classes of a type, those that compute the most usual loss first."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from torch import nn

from gradscope.errors import MissingLibraryError
from gradscope.target.hf.settings import default_of, parts_of

HEADS = (
    "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "CAUSAL_LM", "CTC", "IMAGE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "AUDIO_CLASSIFICATION",
    "DEPTH_ESTIMATION", "TIME_SERIES_PREDICTION", "SEQUENCE_CLASSIFICATION", "IMAGE_TO_IMAGE", "OBJECT_DETECTION",
    "UNIVERSAL_SEGMENTATION", "KEYPOINT_DETECTION", "TEXT_TO_SPECTROGRAM", "PRETRAINING", "MASKED_IMAGE_MODELING",
)  # fmt: skip
"""The libraries' lists of classes by task, those whose loss uses most of a model first."""
BUILT_IN_DOCS = re.compile(r"^>>> model = (\w+)\((?:config=)?config", re.MULTILINE)
"""The model that the documentation of a configuration builds from it."""


def classes_of(model_type: str, config_class: type) -> list[type]:
    """Return the model classes of a type, best first.

    Those that compute a loss come first, then the bare model, then what else its file makes public, then its parts,
    then what its documentation builds from it.

    Raises:
        MissingLibraryError: If the file of the models needs a library that is not installed.
    """
    module = _models_beside(config_class)
    listed = _listed(model_type, module)
    found = [cls for cls in listed if can_run(cls)]
    defined = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == module.__name__
        and "forward" in vars(value)
    ]
    public = getattr(module, "__all__", ())
    own = [cls for cls in defined if getattr(cls, "config_class", None) is config_class]
    own.sort(key=lambda cls: cls.__name__ not in public)
    parts = [] if listed or own else [cls for cls in reversed(defined) if _is_made_from(cls, config_class)]
    told = [] if found or own or parts else _documented(config_class, module)
    return sorted(dict.fromkeys([*found, *own, *parts, *told]), key=lambda cls: not _is_contrastive(cls))


def is_listed(cls: type, model_type: str, config_class: type) -> bool:
    """Whether the library lists a class for a type, as a head or as the bare model; its parts it does not list."""
    return cls in _listed(model_type, _models_beside(config_class))


def holders_of(model_type: str, config_class: type) -> list[type]:
    """Return the models of a type that cannot be called, and only hold the parts that others call."""
    module = _models_beside(config_class)
    own = [value for value in vars(module).values() if getattr(value, "config_class", None) is config_class]
    return [cls for cls in dict.fromkeys([*_listed(model_type, module), *own]) if not can_run(cls)]


def by_reach(classes: Iterable[Any], config_class: Any) -> tuple[list[Any], dict[Any, str]]:
    """Return the classes that a whole configuration builds, and those that a part of it does, with the part's name.

    The text model of a composite may be listed for its type, and is not all of it.
    """
    kinds = {kind: name for name, kind in getattr(config_class, "sub_configs", {}).items()}
    kinds |= {type(part): name for name, part in parts_of(default_of(config_class)).items()}
    wholes, portions = [], {}
    for cls in classes:
        kind = getattr(cls, "config_class", None)
        if isinstance(kind, type) and kind in kinds and not issubclass(config_class, kind):
            portions[cls] = kinds[kind]
        else:
            wholes.append(cls)
    return wholes, portions


def _listed(model_type: str, module: Any) -> list[Any]:
    """Return the classes that the library lists for a type, by task."""
    from transformers.models.auto import modeling_auto

    names = [name for head in HEADS for name in _names(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", model_type)]
    names += _names(modeling_auto, "MODEL_MAPPING_NAMES", model_type)
    return [cls for name in names if (cls := _class_named(name, module)) is not None]


def _documented(config_class: type, module: Any) -> list[Any]:
    """Return the models that the documentation of a configuration builds from it."""
    names = BUILT_IN_DOCS.findall(inspect.getdoc(config_class) or "")
    classes = (_class_named(name, module) for name in names)
    return [cls for cls in classes if isinstance(cls, type) and issubclass(cls, nn.Module) and can_run(cls)]


def _models_beside(config_class: type) -> Any:
    """Import the file of models beside a configuration's; some types use the models of another."""
    name = config_class.__module__.replace(".configuration_", ".modeling_")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return ModuleType(name)
        library = (error.name or "").partition(".")[0]
        raise MissingLibraryError(
            f"{config_class.__name__.removesuffix('Config')} needs {library}, which is not installed.",
            hint=f"pip install {library}",
        ) from error


def _class_named(name: str, module: Any) -> Any:
    import transformers

    return getattr(module, name, None) or getattr(transformers, name, None)


def can_run(cls: Any) -> bool:
    """Whether a module of a class can be called; some only hold the parts that others call."""
    return getattr(cls, "forward", None) is not nn.Module.forward


def _is_made_from(cls: type, config_class: type) -> bool:
    """Whether a module is built from one argument alone, a configuration of that class."""
    needed = [
        parameter
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    return len(needed) == 1 and needed[0].annotation in (config_class, config_class.__name__)


def _is_contrastive(cls: Any) -> bool:
    """Whether a class compares two kinds of input; it uses both halves of a composite model, its heads only one."""
    return "return_loss" in inspect.signature(cls.forward).parameters


def _names(modeling_auto: Any, mapping: str, model_type: str) -> Iterator[str]:
    names = getattr(modeling_auto, mapping, {}).get(model_type, ())
    yield from (names,) if isinstance(names, str) else names
