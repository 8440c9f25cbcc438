"""Make a configuration smaller by one factor: every width is divided by the same number, every count stays.

Heads times their size make a width, sections of a rotation add up to half a head: such relations, whatever they are,
outlive a common divisor, where sizes chosen one by one by their names do not.
"""

from __future__ import annotations

import math
import re
from typing import Any

from gradscope.target.hf.settings import constructor_values, parts_of, read_setting

WIDTHS = re.compile(
    r"(hidden|intermediate|embed\w*|embd|inner|ffn|mlp|model|head|rope|codebook|projection|proj|bottleneck|state|output|"
    r"adapter|connector|qk|v|kv|q|time|d|condition\w*|channel\w*|input)_?(sizes?|dims?|dimensions?|rank|widths?)$|"
    r"^(d_model|d_kv|d_ff|n_embd|n_inner|dim|width|hidden_size\w*|intermediate_size\w*|\w+_(embed_dim|hidden_size|hidden_dim|"
    r"head_dim|lora_rank|intermediate_size|ffn_dim|embedding_size))$|_lora_rank$|mrope_section$|_dims?$"
)
"""Settings that measure a width, in numbers of a vector."""
CHANNELS = re.compile(r"(^|_)(channels?|filters?)(_list)?$")
"""Settings that measure the width of a convolution; those of what goes in are as few as the colours of a picture."""
CHANNEL_UNIT = 8
"""What widths of convolutions are multiples of; other numbers of channels are given by the world outside."""
COUNTED = re.compile(
    r"^(num_|n_(?!embd|inner))|(patch|image)(?!\w*_dims?$)|vocab|window|kernel|position|mel|freq|feature_size$|label"
)
"""Settings that count, or that measure something in the world outside."""
FREE = re.compile(r"intermediate|inner|ffn|mlp|d_ff")
"""Widths that hang together with no other: the inside of two layers."""
FEW_BLOCKS = {"depth": 2}
"""What makes an architecture small that is known by its name alone: transformers of timm take it."""
LARGEST_FACTOR = 64
"""The largest divisor that is tried."""
SMALLEST_PART = 4
"""What every width stays at or above: two pairs to rotate."""
NARROW = 8
"""A width of so few numbers stays, so that it does not hold the others back: a code of a few bits."""


def common_factor(config: Any) -> int:
    """Return the largest power of two that divides every width of a configuration and its parts; 1 where none does."""
    sizes, factor = _sizes_within(config), LARGEST_FACTOR
    while factor > 1 and not all(_divides(factor, size) for size in sizes):
        factor //= 2
    return factor if sizes else 1


def divided(config: Any, factor: int) -> dict[str, Any]:
    """Return the widths of a configuration divided by a factor."""
    return {name: _parted(value, factor) for name, value in _widths(config).items()}


def few_blocks(config: Any) -> Any:
    """Return a configuration whose parts have few blocks that are known by the name of their architecture alone."""
    for part in parts_of(config).values():
        few_blocks(part)
    if isinstance(read_setting(config, "architecture"), str) and read_setting(config, "model_args") is None:
        config.model_args = dict(FEW_BLOCKS)
    return config


def _parted(value: Any, factor: int) -> Any:
    if isinstance(value, dict):
        return {key: _parted(part, factor) if WIDTHS.search(key) else part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(part // factor if part > SMALLEST_PART else part for part in value)
    return value // factor


def _widths(config: Any) -> dict[str, Any]:
    values = constructor_values(config)
    found = {n: v for n, v in values.items() if WIDTHS.search(n) and not COUNTED.search(n) and _numbers(v)}
    found |= {n: v for n, v in values.items() if CHANNELS.search(n) and _channels(v)}
    rotation = values.get("rope_parameters")
    if isinstance(rotation, dict) and any(_numbers(v) for n, v in rotation.items() if WIDTHS.search(n)):
        found["rope_parameters"] = rotation
    return found


def _numbers(value: Any) -> list[int]:
    """Return the whole numbers that a setting holds; none where it holds anything else, or nothing but small ones."""
    if isinstance(value, dict):
        return [number for name, part in value.items() if WIDTHS.search(name) for number in _numbers(part)]
    numbers, least = (list(value), SMALLEST_PART) if isinstance(value, list | tuple) else ([value], NARROW)
    return numbers if numbers and all(type(number) is int and number > least for number in numbers) else []


def _channels(value: Any) -> list[int]:
    """Return the widths of convolutions that a setting holds, without the colours that a list of them begins with."""
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    wide = [number for number in numbers if type(number) is not int or number > SMALLEST_PART]
    return wide if all(type(number) is int and number % CHANNEL_UNIT == 0 for number in wide) else []


def _sizes_within(config: Any) -> list[int]:
    """Return the widths that a factor must divide, with the size of a head where none is told."""
    inner = [size for part in parts_of(config).values() for size in _sizes_within(part)]
    widths = {name: value for name, value in _widths(config).items() if not FREE.search(name)}
    width, heads = (read_setting(config, name) for name in ("hidden_size", "num_attention_heads"))
    derived = [width // heads] if type(width) is type(heads) is int and heads and "head_dim" not in widths else []
    return inner + derived + [n for value in widths.values() for n in _numbers(value) or _channels(value)]


def _divides(factor: int, size: int) -> bool:
    return math.gcd(factor, size) == factor and size // factor >= SMALLEST_PART
