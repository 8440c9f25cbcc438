"""The model classes of a type, those that compute the most usual loss first."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

HEADS = (
    "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "CAUSAL_LM", "CTC", "IMAGE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "AUDIO_CLASSIFICATION",
    "DEPTH_ESTIMATION", "TIME_SERIES_PREDICTION", "SEQUENCE_CLASSIFICATION", "IMAGE_TO_IMAGE", "OBJECT_DETECTION",
    "UNIVERSAL_SEGMENTATION", "KEYPOINT_DETECTION", "TEXT_TO_SPECTROGRAM", "PRETRAINING", "MASKED_IMAGE_MODELING",
)  # fmt: skip


def classes_of(model_type: str, config_class: type) -> list[type]:
    """Return the model classes of a type: by head, then the bare model, then whatever else its file defines."""
    from transformers import PreTrainedModel
    from transformers.models.auto import modeling_auto

    module: Any = importlib.import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
    names = [name for head in HEADS for name in _names(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", model_type)]
    names += _names(modeling_auto, "MODEL_MAPPING_NAMES", model_type)
    found = [getattr(module, name) for name in names if hasattr(module, name)]
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, PreTrainedModel)
        and value.__module__ == module.__name__
        and getattr(value, "config_class", None) is config_class
        and "forward" in vars(value)
    ]
    return sorted(dict.fromkeys([*found, *own]), key=lambda cls: not _is_contrastive(cls))


def _is_contrastive(cls: Any) -> bool:
    """Whether a class compares two kinds of input; it uses both halves of a composite model, its heads only one."""
    return "return_loss" in inspect.signature(cls.forward).parameters


def _names(modeling_auto: Any, mapping: str, model_type: str) -> Iterator[str]:
    names = getattr(modeling_auto, mapping, {}).get(model_type, ())
    yield from (names,) if isinstance(names, str) else names
