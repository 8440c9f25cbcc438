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
from gradscope.target.hf.sizes import (
    DEPTHS,
    HIERARCHICAL,
    HIGHEST_ID,
    LAYERS,
    PLACEHOLDER_ID,
    RANDOM_DEPTH,
    SPECIAL_ID,
    VOCAB,
    smaller,
)
from gradscope.target.nearest import did_you_mean

LEVELS = (0, 1, 2, 3)
SMALL_PICTURES = 1
"""The last level at which pictures are made small."""
UNCHANGED = 3
"""The level at which a configuration is taken as it is."""
KINDS = re.compile(r"layer_types|layers_block_type|block_types|layers_types")
OF_EACH_KIND = 2
"""Layers of one kind often share weights with one another, so that one of them is too few."""
USUAL_SECTIONS = 3
"""Time, height and width."""
PATCHES_PER_SIDE = 4
SMALL_SIDE = 64
SMALL_WINDOW = 4
UNREADABLE = object()
OUTWARD = re.compile(r"^out_hidden_size$")
"""The width that a part hands on is that of the next part, whatever its own stages are."""
STAGES = re.compile(r"^(num_(\w+_)?(blocks|stages)|num_hidden_layers)$")
"""Counts that may be of stages, each of which has a size in some list, rather than of layers."""
LAYER_CHOICE = re.compile(r"feature_layers?$|deepstack_\w*index(es)?$|target_layers$")
"""Layers of an encoder whose outputs are used, by number."""
MAP_SIZES = re.compile(r"feat(ure)?_sizes$")
LARGE_PATCH = 8
"""Patches at least this large make a Vision Transformer: four of them a side are a picture."""


def tiny(cls: Any, given: Mapping[str, Any], level: int = 0) -> Any:
    """Return a small instance of a configuration class.

    Args:
        cls: The configuration class.
        given: What the user asked for; ``part.key`` reaches into a part of a composite configuration.
        level: 0 to shrink everything, 1 to keep the widths, 2 to keep the pictures' size as well, 3 to shrink nothing.
    """
    default = cls()
    changes = shrunk(default, level, []) if level < UNCHANGED else {}
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
    stages = _lengths_of_stages(config)
    for name, value in constructor_values(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            inner = shrunk(value, level, used_ids)
            changes[name] = type(value)(**{**_own_settings(value), **inner, **FACTS.get(value.model_type, {})})
        elif RANDOM_DEPTH.search(name) and isinstance(value, float):
            changes[name] = 0.0
        elif value is None and PLACEHOLDER_ID.search(name):
            changes[name] = _low_ids(VOCAB, used_ids)
        elif SPECIAL_ID.search(name) and _too_high(value):
            changes[name] = _low_ids(value, used_ids)
        elif isinstance(value, int) and not isinstance(value, bool):
            if not (STAGES.search(name) and value in stages):
                keeps_widths = depth_only and not (level == 0 and OUTWARD.search(name))
                changes[name] = smaller(name, value, depth_only=keeps_widths)
        elif LAYER_CHOICE.search(name) and _is_whole_numbers(value) and max(value) >= LAYERS:
            changes[name] = _first_layers(value)
        elif DEPTHS.search(name) and _is_whole_numbers(value):
            changes[name] = type(value)(min(number, LAYERS) for number in value)
    changes = {name: value for name, value in changes.items() if _differs(value, _read(config, name))}
    changes.update(_fitting_layers(config, changes))
    changes.update(_fitting_stages(config, changes))
    if level <= SMALL_PICTURES:
        changes.update(_small_picture(config))
        changes.update(_smaller_maps(config, changes))
    if not depth_only:
        changes.update(_fitting_heads(config, changes))
        changes.update(_fitting_rotation(config, changes))
    return changes


def constructor_values(config: Any) -> dict[str, Any]:
    """Return the values of a configuration that its constructor takes."""
    names = [name for name in inspect.signature(type(config)).parameters if name not in ("kwargs", "args")]
    return {name: value for name in names if (value := _read(config, name)) is not UNREADABLE}


def _read(config: Any, name: str) -> Any:
    """Return a setting; a configuration refuses to tell one that differs from layer to layer."""
    try:
        return getattr(config, name, UNREADABLE)
    except RuntimeError:
        return UNREADABLE


def _differs(new: Any, old: Any) -> bool:
    """Whether a setting was changed; parts always count as changed, and some refuse to be compared."""
    return hasattr(new, "to_dict") or bool(new != old)


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


def _first_layers(chosen: Any) -> Any:
    """Choose among few layers instead of many, in the same order."""
    ranks = sorted(set(chosen))[:LAYERS]
    return type(chosen)(ranks.index(number) for number in chosen if number in ranks)


def _lengths_of_stages(config: Any) -> set[int]:
    """Return how many stages a configuration has, by its lists with a size for each."""
    values = constructor_values(config).items()
    return {len(v) for n, v in values if (HIERARCHICAL.search(n) or DEPTHS.search(n)) and _is_whole_numbers(v)} - {1}


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
    """A picture of a few patches a side; a size in two numbers stays in two, and a strip keeps its shape."""
    size, patch = getattr(config, "image_size", None), _one_side(getattr(config, "patch_size", None))
    side = _one_side(size)
    if side is None:
        return {}
    small = patch * PATCHES_PER_SIDE if patch is not None and patch >= LARGE_PATCH else SMALL_SIDE
    changes: dict[str, Any] = {}
    if isinstance(window := getattr(config, "window_size", None), int):
        window, stages = min(window, SMALL_WINDOW), getattr(config, "depths", None)
        if patch is not None and isinstance(stages, list | tuple):  # the last stage, halved at each, is one window
            small = patch * window * 2 ** (len(stages) - 1)
        changes["window_size"] = window
    small = min(side, small)
    return {**changes, "image_size": type(size)([small, small]) if isinstance(size, list | tuple) else small}


def _smaller_maps(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Shrink the sizes of maps of features as much as the picture that they are computed from."""
    before, after = _picture_side(config, parts_of(config)), _picture_side(None, changes)
    if not before or not after:
        return {}

    def scaled(size: Any) -> Any:
        return [scaled(part) for part in size] if isinstance(size, list | tuple) else max(size * after // before, 1)

    maps = {name: value for name, value in constructor_values(config).items() if MAP_SIZES.search(name)}
    return {name: scaled(value) for name, value in maps.items() if value}


def _picture_side(config: Any, settings: Mapping[str, Any]) -> int:
    """Return the side of the pictures that a configuration, or a part among its settings, is for; 0 where none says."""
    own = _one_side(settings.get("image_size", getattr(config, "image_size", None)))
    parts = (part for part in settings.values() if hasattr(part, "to_dict") and hasattr(part, "model_type"))
    return own or next((side for part in parts if (side := _picture_side(part, parts_of(part)))), 0)


def _one_side(size: Any) -> int | None:
    """Return the side of a square, given as one number or as two equal ones."""
    if isinstance(size, list | tuple) and len(size) == 2 and size[0] == size[1]:  # noqa: PLR2004  # height and width
        size = size[0]
    return size if isinstance(size, int) and not isinstance(size, bool) else None


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
