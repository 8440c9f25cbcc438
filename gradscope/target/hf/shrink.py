"""A tiny configuration of a model type, made from its default one."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradscope.errors import TargetError
from gradscope.target.hf.facts import FACTS
from gradscope.target.hf.sizes import DEPTHS, HIERARCHICAL, HIGHEST_ID, LAYERS, RANDOM_DEPTH, SPECIAL_ID, VOCAB, smaller
from gradscope.target.nearest import did_you_mean

LEVELS = (0, 1, 2)
SMALL_PICTURES = 1
"""The last level at which pictures are made small."""
KINDS = re.compile(r"layer_types|layers_block_type|block_types|layers_types")
OF_EACH_KIND = 2
"""Layers of one kind often share weights with one another, so that one of them is too few."""
USUAL_SECTIONS = 3
"""Time, height and width."""
PATCHES_PER_SIDE = 4
SMALL_SIDE = 64
SMALL_WINDOW = 4
LARGE_PATCH = 8
"""Patches at least this large make a Vision Transformer: four of them a side are a picture."""


def tiny(cls: Any, given: Mapping[str, Any], level: int = 0) -> Any:
    """Return a small instance of a configuration class.

    Args:
        cls: The configuration class.
        given: What the user asked for; ``part.key`` reaches into a part of a composite configuration.
        level: 0 to shrink everything, 1 to keep the widths, 2 to keep the pictures' size as well.
    """
    default = cls()
    changes = shrunk(default, level, [])
    changes.update(FACTS.get(cls.model_type, {}) if level == 0 else {})
    own = {key: value for key, value in given.items() if "." not in key}
    refuse_unknown(default, given)
    for key, part in parts_of(default).items():
        inner = {k.partition(".")[2]: v for k, v in given.items() if k.startswith(key + ".")}
        if inner:
            changes[key] = type(part)(**{**constructor_values(changes.get(key, part)), **inner})
    config = cls(**{**changes, **{attribute_name(cls, key): value for key, value in own.items()}})
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 1
    return config


def shrunk(config: Any, level: int, used_ids: list[int]) -> dict[str, Any]:
    """Return the constructor arguments that make a smaller copy of a configuration, its parts shrunk as well."""
    changes: dict[str, Any] = {}
    depth_only = level > 0 or _is_hierarchical(config)
    for name, value in constructor_values(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            inner = shrunk(value, level, used_ids)
            changes[name] = type(value)(**{**_own_settings(value), **inner, **FACTS.get(value.model_type, {})})
        elif RANDOM_DEPTH.search(name) and isinstance(value, float):
            changes[name] = 0.0
        elif SPECIAL_ID.search(name) and _too_high(value):
            changes[name] = _low_ids(value, used_ids)
        elif isinstance(value, int) and not isinstance(value, bool):
            changes[name] = smaller(name, value, depth_only=depth_only)
        elif DEPTHS.search(name) and _is_whole_numbers(value):
            changes[name] = type(value)(min(number, LAYERS) for number in value)
        elif name == "image_size" and _is_whole_numbers(value):
            changes[name] = value
    changes = {name: value for name, value in changes.items() if value != getattr(config, name, None)}
    changes.update(_fitting_layers(config, changes))
    changes.update(_fitting_stages(config, changes))
    if level <= SMALL_PICTURES:
        changes.update(_small_picture(config))
    if not depth_only:
        changes.update(_fitting_heads(config, changes))
        changes.update(_fitting_rotation(config, changes))
    return changes


def constructor_values(config: Any) -> dict[str, Any]:
    """Return the values of a configuration that its constructor takes."""
    names = inspect.signature(type(config)).parameters
    return {name: getattr(config, name) for name in names if name not in ("kwargs", "args") and hasattr(config, name)}


def parts_of(config: Any) -> dict[str, Any]:
    """Return the configurations inside a composite one."""
    return {k: v for k, v in vars(config).items() if hasattr(v, "to_dict") and hasattr(v, "model_type")}


def attribute_name(cls: Any, key: str) -> str:
    """Return the name under which a configuration keeps a common setting (GPT-2's n_layer for num_hidden_layers)."""
    return str(getattr(cls, "attribute_map", {}).get(key, key))


def refuse_unknown(config: Any, given: Mapping[str, Any]) -> None:
    """Raise for a setting that a configuration does not have, naming the nearest.

    Raises:
        TargetError: If there is one.
    """
    known = [*constructor_values(config), *getattr(type(config), "attribute_map", {}), "num_labels"]
    for key, part in parts_of(config).items():
        known += [f"{key}.{name}" for name in constructor_values(part)]
    for key in given:
        if key not in known:
            raise TargetError(f"A {config.model_type} configuration has no {key!r}.", rule=did_you_mean(key, known))


def _fitting_layers(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep two layers of every kind in a stack that mixes kinds, and cut other lists of one entry a layer to length."""
    old = getattr(config, "num_hidden_layers", None)
    if not isinstance(old, int) or "num_hidden_layers" not in changes:
        return {}
    per_layer = {
        name: value
        for name, value in constructor_values(config).items()
        if isinstance(value, list | tuple) and len(value) == old and not DEPTHS.search(name)
    }
    kinds = next((value for name, value in per_layer.items() if KINDS.search(name) and len(set(value)) > 1), None)
    kept = [i for i, kind in enumerate(kinds) if kinds[:i].count(kind) < OF_EACH_KIND] if kinds else []
    kept += [i for i in range(old) if i not in kept][: max(changes["num_hidden_layers"] - len(kept), 0)]
    kept, new = sorted(kept), len(kept)
    return {
        "num_hidden_layers": new,
        **{name: type(value)(value[i] for i in kept) for name, value in per_layer.items()},
    }


def _fitting_stages(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Let a backbone put out as many stages as before, from fewer layers where its stages are its layers."""
    features = getattr(config, "out_features", None)
    if not isinstance(features, list) or not features:
        return {}
    if "num_hidden_layers" not in changes or len(getattr(config, "stage_names", ())) != config.num_hidden_layers + 1:
        return {"out_features": list(features)}
    layers = max(changes["num_hidden_layers"], len(features))
    return {
        "num_hidden_layers": layers,
        "out_features": [f"stage{layers - len(features) + 1 + i}" for i in range(len(features))],
    }


def _fitting_heads(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Give a size to heads that have none of their own: some models forget to derive it."""
    values = constructor_values(config)
    width, heads = (changes.get(name, values.get(name)) for name in ("hidden_size", "num_attention_heads"))
    if values.get("head_dim", 0) is not None or not isinstance(width, int) or not isinstance(heads, int):
        return {}
    return {"head_dim": width // heads}


def _is_hierarchical(config: Any) -> bool:
    values = constructor_values(config).items()
    return any(HIERARCHICAL.search(name) and _is_whole_numbers(value) and len(value) > 1 for name, value in values)


def _own_settings(config: Any) -> dict[str, Any]:
    """What distinguishes a part from the default of its class: a composite may set it up differently."""
    try:
        default = type(config)()
    except (TypeError, ValueError):
        return constructor_values(config)
    plain = (int, float, str, bool, list, tuple, type(None))
    return {
        name: value
        for name, value in constructor_values(config).items()
        if isinstance(value, plain) and value != getattr(default, name, None) and not name.startswith("_")
    }


def _too_high(value: Any) -> bool:
    ids = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(number, int) and not isinstance(number, bool) and number >= VOCAB for number in ids)


def _low_ids(value: Any, used_ids: list[int]) -> Any:
    """Give special tokens beyond the small vocabulary ids of their own at its end."""
    if isinstance(value, list | tuple):
        return type(value)(
            _low_ids(number, used_ids) if isinstance(number, int) and number >= VOCAB else number for number in value
        )
    used_ids.append(HIGHEST_ID - len(used_ids))
    return used_ids[-1]


def _is_whole_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(number, int) for number in value)


def _small_picture(config: Any) -> dict[str, Any]:
    """A picture of a few patches a side."""
    side, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if not isinstance(side, int):
        return {}
    small = patch * PATCHES_PER_SIDE if isinstance(patch, int) and patch >= LARGE_PATCH else SMALL_SIDE
    if not isinstance(window := getattr(config, "window_size", None), int):
        return {"image_size": min(side, small)}
    window, stages = min(window, SMALL_WINDOW), getattr(config, "depths", None)
    if isinstance(patch, int) and isinstance(stages, list | tuple):  # the last stage, halved at each, is one window
        small = patch * window * 2 ** (len(stages) - 1)
    return {"image_size": min(side, small), "window_size": window}


def _fitting_rotation(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Make the sections of a multi-axis rotary embedding add up to half the new size of a head."""
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, Mapping) or not _has_sections(inspect.getsourcefile(type(config)) or ""):
        return {}
    sections = rope.get("mrope_section") or range(USUAL_SECTIONS)
    head = changes.get("head_dim") or getattr(config, "head_dim", None)
    width = changes.get("hidden_size", getattr(config, "hidden_size", 0))
    heads = changes.get("num_attention_heads", getattr(config, "num_attention_heads", 1))
    half = int((head or width // heads) * rope.get("partial_rotary_factor", 1.0)) // 2
    rest = half * 3 // 8
    return {
        "rope_parameters": {**rope, "mrope_section": [half - rest * (len(sections) - 1), *[rest] * (len(sections) - 1)]}
    }


@functools.cache
def _has_sections(file: str) -> bool:
    """Whether the models of a configuration file rotate several axes; where that is a default, only source tells."""
    model_file = Path(file.replace("configuration_", "modeling_"))
    return model_file.is_file() and "mrope_section" in model_file.read_text(encoding="utf-8")
