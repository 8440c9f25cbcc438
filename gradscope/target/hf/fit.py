"""Keep together what hangs together in a configuration that was made small: layers, stages, heads, pictures, maps."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from gradscope.target.hf.settings import constructor_values, is_part, parts_of
from gradscope.target.hf.sizes import DEPTHS
from gradscope.target.hf.written import source_of_models

KINDS = re.compile(r"layer_types|layers_block_type|block_types|layers_types")
"""Settings that name the kind of every layer."""
OF_EACH_KIND = 2
"""Layers of one kind often share weights with one another, so that one of them is too few."""
ROTATED = ("qk_rope_head_dim", "head_dim")
"""How much of a head is rotated."""
BASE = 10_000.0
"""Of the wavelengths of a rotary embedding (Su et al. 2021, section 3.4.3)."""
DEFAULT_SECTIONS = re.compile(r"mrope_section\W{0,3}, \[(\d+(?:, \d+)+)\]")
"""The sections that a model's source falls back on."""
USUAL_SECTIONS = 3
"""Time, height and width."""
PATCHES_PER_SIDE = 4
"""Patches a side of a small picture: enough to tell positions apart."""
SMALL_SIDE = 64
"""Pixels a side of a small picture where patches do not say: five halvings leave two."""
SMALL_WINDOW = 4
"""Patches a side of a window of attention."""
MAP_SIZES = re.compile(r"feat(ure)?_sizes$|grid_pinpoints$")
"""Sizes in features or in pixels of what pictures are cut into or become; all shrink with the picture."""
EXPERTS = re.compile(r"^(?!.*shared).*experts$|expert_num")
CHOSEN = re.compile(r"experts_per_tok|(^|_)(top_?k|k)$|moe_topk")
"""How many experts there are, and how many are chosen for a token."""
POOLED = re.compile(r"^mm_tokens_per_image$")
"""How many tokens a picture becomes, whatever its patches."""
MERGED = re.compile(r"(^|_)merge_size$")
"""How many patches a side become one token."""
LARGE_PATCH = 8
"""Patches at least this large make a Vision Transformer: four of them a side are a picture."""


def fitting_layers(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
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


def fitting_stages(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
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


def enough_experts(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep as many experts as are chosen for a token, where fewer of them would be left."""
    values = {**constructor_values(config), **changes}
    chosen = max((v for n, v in values.items() if CHOSEN.search(n) and type(v) is int), default=0)
    return {
        name: type(value)([max(n, chosen) for n in value]) if isinstance(value, list | tuple) else max(value, chosen)
        for name, value in changes.items()
        if EXPERTS.search(name) and (type(value) is int or _is_of_numbers(value))
    }


def _is_of_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(number) is int for number in value)


def fitting_heads(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Give a size to heads that have none of their own: some models forget to derive it."""
    values = constructor_values(config)
    width, heads = (changes.get(name, values.get(name)) for name in ("hidden_size", "num_attention_heads"))
    if values.get("head_dim", 0) is not None or not isinstance(width, int) or not isinstance(heads, int):
        return {}
    return {"head_dim": width // heads}


def latent_heads(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Let every head of a latent attention have keys of its own: it shares none."""
    values = constructor_values(config)
    heads = changes.get("num_attention_heads", values.get("num_attention_heads"))
    if "kv_lora_rank" not in values or values.get("num_key_value_heads") is None or not isinstance(heads, int):
        return {}
    return {"num_key_value_heads": heads}


def fitting_rotation(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Make the sections of a multi-axis rotary embedding add up to half the new size of a head."""
    rope = getattr(config, "rope_parameters", None)
    source = source_of_models(type(config))
    if not isinstance(rope, Mapping) or not rope or "mrope_section" not in source:
        return {}
    if any(isinstance(part, Mapping) for part in rope.values()):  # each kind of layer rotates in its own way
        return {}
    sections = rope.get("mrope_section") or _sections_in(source)
    return {"rope_parameters": {**rope, "mrope_section": _sections(config, changes, sections)}}


def plain_rotation(config: Any) -> dict[str, Any]:
    """Return how a kind of layer rotates where a configuration says nothing of it."""
    plain: dict[str, Any] = {"rope_type": "default", "rope_theta": BASE}
    source = source_of_models(type(config))
    has_sections = "mrope_section" in source
    return {**plain, "mrope_section": _sections(config, {}, _sections_in(source))} if has_sections else plain


def _sections(config: Any, changes: Mapping[str, Any], sections: Any) -> list[int]:
    """Return sections like those given that add up to half of what is rotated of a head."""
    head = next((size for name in ROTATED if (size := changes.get(name) or getattr(config, name, None))), None)
    width = changes.get("hidden_size", getattr(config, "hidden_size", 0))
    heads = changes.get("num_attention_heads", getattr(config, "num_attention_heads", 1))
    rope = getattr(config, "rope_parameters", None) or {}
    half = int((head or width // heads) * rope.get("partial_rotary_factor", 1.0)) // 2
    rest = half * 3 // 8
    new = [half - rest * (len(sections) - 1), *[rest] * (len(sections) - 1)]
    is_last_apart = sections[0] == sections[1] != sections[-1]  # height and width come first, and are alike
    return new[::-1] if is_last_apart else new


def _sections_in(source: str) -> list[int]:
    """Return the sections that a model takes where its configuration names none."""
    match = DEFAULT_SECTIONS.search(source)
    return [int(part) for part in match[1].split(",")] if match else list(range(USUAL_SECTIONS))


def small_picture(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A picture of a few patches a side; a size in two numbers stays in two, and a strip keeps its shape.

    Where a part cuts the same picture into patches, the size is the one that the part was given.
    """
    size, patch = getattr(config, "image_size", None), _one_side(getattr(config, "patch_size", None))
    side, count = _one_side(size), _one_side(constructor_values(config).get("num_patches"))
    if side is None:  # a square number counts all patches, another one those of a side
        few = PATCHES_PER_SIDE ** (2 if math.isqrt(count or 0) ** 2 == count else 1)
        return {"num_patches": min(count, few)} if count else {}
    small = patch * PATCHES_PER_SIDE if patch is not None and patch >= LARGE_PATCH else SMALL_SIDE
    if patch is None and _picture_side(None, parts_of(config)) == side:
        small = _picture_side(None, changes) or small
    found: dict[str, Any] = {}
    if isinstance(window := getattr(config, "window_size", None), int):
        window, stages = min(window, SMALL_WINDOW), getattr(config, "depths", None)
        if patch is not None and isinstance(stages, list | tuple):  # the last stage, halved at each, is one window
            small = patch * window * 2 ** (len(stages) - 1)
        found["window_size"] = window
    small = min(side, small)
    return {**found, "image_size": type(size)([small, small]) if isinstance(size, list | tuple) else small}


def merged_widths(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep a width of the whole that is that of the patches of a part, some a side merged into one."""
    widths: dict[str, Any] = {}
    for key, part in parts_of(config).items():
        new, values = changes.get(key, part), constructor_values(part)
        merged = next((n**2 for name, n in values.items() if MERGED.search(name) and type(n) is int and n > 1), 0)
        before, after = (getattr(owner, "hidden_size", None) for owner in (part, new))
        if merged and type(before) is type(after) is int:
            same = (name for name, value in constructor_values(config).items() if value == before * merged)
            widths |= {name: after * merged for name in same if name in changes}
    return widths


def smaller_maps(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Shrink the sizes of maps of features, those of a part too, as much as the picture they are computed from."""
    before, after = _picture_side(config, parts_of(config)), _picture_side(None, changes)
    if not before or not after:
        return {}

    def scaled(size: Any) -> Any:
        return [scaled(part) for part in size] if isinstance(size, list | tuple) else max(size * after // before, 1)

    def smaller_in(owner: Any) -> dict[str, Any]:
        maps = {name: value for name, value in constructor_values(owner).items() if MAP_SIZES.search(name)}
        return {name: scaled(value) for name, value in maps.items() if value}

    untold = {k: p for k, p in changes.items() if is_part(p) and not _picture_side(p, parts_of(p)) and smaller_in(p)}
    parts = {key: type(part)(**{**constructor_values(part), **smaller_in(part)}) for key, part in untold.items()}
    return {**smaller_in(config), **parts}


def pooled_tokens(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Let a picture become a quarter as many tokens as it has patches at most, where patches are pooled into tokens."""
    parts = [part for part in changes.values() if is_part(part)]
    sizes = [[_one_side(getattr(part, name, None)) for name in ("image_size", "patch_size")] for part in parts]
    per_side = next((side // patch for side, patch in sizes if side and patch), 0)
    counts = {name: value for name, value in constructor_values(config).items() if POOLED.search(name)}
    return {name: min(value, (per_side // 2) ** 2) for name, value in counts.items() if per_side > 1}


def _picture_side(config: Any, settings: Mapping[str, Any]) -> int:
    """Return the side of the pictures that a configuration, or a part among its settings, is for; 0 where none says."""
    own = _one_side(settings.get("image_size", getattr(config, "image_size", None)))
    parts = (part for part in settings.values() if is_part(part))
    return own or next((side for part in parts if (side := _picture_side(part, parts_of(part)))), 0)


def _one_side(size: Any) -> int | None:
    """Return the side of a square, given as one number or as two equal ones."""
    if isinstance(size, list | tuple) and len(size) == 2 and size[0] == size[1]:  # noqa: PLR2004  # height and width
        size = size[0]
    return size if isinstance(size, int) and not isinstance(size, bool) else None
