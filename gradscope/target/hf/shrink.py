"""A tiny configuration of a model type, made from its default one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gradscope.target.hf.agree import configured
from gradscope.target.hf.facts import FACTS
from gradscope.target.hf.fit import (
    enough_experts,
    fitting_heads,
    fitting_layers,
    fitting_rotation,
    fitting_stages,
    latent_heads,
    merged_widths,
    pooled_tokens,
    small_picture,
    smaller_maps,
)
from gradscope.target.hf.scale import divided
from gradscope.target.hf.settings import (
    attribute_name,
    constructor_values,
    is_part,
    parts_of,
    read_setting,
    refuse_unknown,
)
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

SMALL, SAME_WIDTHS, IN_STEP, SAME_PICTURES, UNCHANGED = range(5)
LEVELS = (SMALL, SAME_WIDTHS, IN_STEP, SAME_PICTURES, UNCHANGED)
"""How far to shrink: everything, depth alone, depth with all widths by one factor, not even pictures, nothing."""
WINDOW = 8
"""Tokens that a sliding window takes where a configuration asks for one and gives it no width."""
OUTWARD = re.compile(r"^out_hidden_size$")
"""The width that a part hands on is that of the next part, whatever its own stages are."""
STAGES = re.compile(r"^(num_(\w+_)?(blocks|stages)|num_hidden_layers)$")
"""Counts that may be of stages, each of which has a size in some list, rather than of layers."""
LEVEL_SCALES = re.compile(r"scale_factors$")
"""How much finer each level of a pyramid of maps is than the picture's patches: without one nothing comes out."""
LAYER_CHOICE = re.compile(
    r"feature_layers?$|deepstack_\w*index(es)?$|target_layers$|layers_indices$|global_attn_index(es)?$|hook_(ids|indices)$|"
    r"cross_att\w*_layers$"
)
"""Layers by number: those of an encoder whose outputs are used, and those that attend to more than the others do."""
FEW_OF_THEM = re.compile(r"global|cross")
"""Layers among others of another kind, so that one of two is of each kind."""


def tiny(cls: Any, given: Mapping[str, Any], level: int = 0, factor: int = 1) -> Any:
    """Return a small instance of a configuration class.

    Args:
        cls: The configuration class.
        given: What the user asked for; ``part.key`` reaches into a part of a composite configuration.
        level: One of `LEVELS`.
        factor: What all widths are divided by where they shrink in step.
    """
    default = configured(cls, {})
    changes = shrunk(default, level, [], factor) if level < UNCHANGED else {}
    changes.update(FACTS.get(cls.model_type, {}) if level == SMALL else {})
    own = {key: value for key, value in given.items() if "." not in key}
    refuse_unknown(default, given)
    for key, part in parts_of(default).items():
        inner = {k.partition(".")[2]: v for k, v in given.items() if k.startswith(key + ".")}
        if inner:
            changes[key] = type(part)(**{**constructor_values(changes.get(key, part)), **inner})
    config = configured(cls, {**changes, **{attribute_name(cls, key): value for key, value in own.items()}})
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 1
    _fill_windows(config)
    return config


def _fill_windows(config: Any) -> None:
    """Give windows a width where none is set: some models make the window's mask even where no layer uses it."""
    if read_setting(config, "layer_types") and read_setting(config, "sliding_window") in (None, 0):
        config.sliding_window = WINDOW
    for part in parts_of(config).values():
        _fill_windows(part)


def shrunk(config: Any, level: int, used_ids: list[int], factor: int = 1) -> dict[str, Any]:
    """Return the constructor arguments that make a smaller copy of a configuration, its parts shrunk as well.

    Args:
        config: The configuration.
        level: One of `LEVELS`.
        used_ids: Special tokens that were given ids of the small vocabulary, to add to.
        factor: What all widths are divided by where they shrink in step.
    """
    changes: dict[str, Any] = {}
    depth_only = level > SMALL or _is_hierarchical(config)
    stages = _lengths_of_stages(config)
    for name, value in constructor_values(config).items():
        if is_part(value):
            changes[name] = _smaller_part(value, level, used_ids, factor)
        elif RANDOM_DEPTH.search(name) and isinstance(value, float):
            changes[name] = 0.0
        elif value is None and PLACEHOLDER_ID.search(name):
            changes[name] = _low_ids(VOCAB, used_ids)
        elif SPECIAL_ID.search(name) and _too_high(value):
            changes[name] = _low_ids(value, used_ids)
        elif isinstance(value, int) and not isinstance(value, bool):
            if not (STAGES.search(name) and value in stages):
                keeps_widths = depth_only and not (level == SMALL and OUTWARD.search(name))
                changes[name] = smaller(name, value, depth_only=keeps_widths)
        elif isinstance(value, list | tuple):
            changes[name] = _fewer(name, value)
    changes.update(enough_experts(config, changes))
    changes = {name: value for name, value in changes.items() if _differs(value, read_setting(config, name))}
    changes.update(fitting_layers(config, changes))
    changes.update(fitting_stages(config, changes))
    if level < SAME_PICTURES:
        changes.update(small_picture(config, changes))
        changes.update(smaller_maps(config, changes))
        changes.update(pooled_tokens(config, changes))
    if level == IN_STEP and factor > 1:
        changes.update(divided(config, factor))
    if not depth_only:
        changes.update(fitting_heads(config, changes))
        changes.update(latent_heads(config, changes))
        changes.update(merged_widths(config, changes))
        changes.update(fitting_rotation(config, changes))
    return changes


def _fewer(name: str, value: Any) -> Any:
    """Return a list of layers, or of layers a stage, for fewer of them; one level where a pyramid of maps has none."""
    if LEVEL_SCALES.search(name) and not value:
        return [1.0]
    if LAYER_CHOICE.search(name) and _is_whole_numbers(value) and max(value) >= LAYERS:
        return type(value)([LAYERS - 1]) if FEW_OF_THEM.search(name) else _first_layers(value)
    if DEPTHS.search(name) and _is_whole_numbers(value):
        return type(value)(min(number, LAYERS) for number in value)
    return value


def _smaller_part(part: Any, level: int, used_ids: list[int], factor: int) -> Any:
    """Return a smaller copy of a part; itself where it names its architecture, which its sizes only describe."""
    if isinstance(read_setting(part, "architecture"), str):
        return part
    inner = shrunk(part, level, used_ids, factor)
    return configured(type(part), {**_own_settings(part), **inner, **FACTS.get(part.model_type, {})})


def _differs(new: Any, old: Any) -> bool:
    """Whether a setting was changed; parts always count as changed, and some refuse to be compared."""
    return hasattr(new, "to_dict") or bool(new != old)


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
    """What distinguishes a part from the default of its class: a composite may set it up differently.

    Also what no constructor names, such as a switch that only models read, and a table where the default has none.
    """
    try:
        default = type(config)()
    except (TypeError, ValueError):
        return constructor_values(config)
    plain = (int, float, str, bool, list, tuple, type(None))
    own = constructor_values(config)
    more = {name: value for name, value in vars(config).items() if name not in {**vars(default), **own}}
    return {
        name: value
        for name, value in {**own, **more}.items()
        if isinstance(value, plain if getattr(default, name, None) else (*plain, dict))
        and value != getattr(default, name, None)
        and not name.startswith("_")
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
