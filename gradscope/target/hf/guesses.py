"""First guesses for the inputs of a transformers model, from the signature of its forward and its configuration.

The search refines them by what their errors say.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from gradscope.target.hf.names import GRID, LOWEST_ID, SOUND_FLAG, TOKENS, VIDEO_FLAG, named
from gradscope.target.hf.read import Facts, number_in, read_facts
from gradscope.target.hf.senses import AUDIO_NAMES, PICTURE_NAMES, pictures, sounds
from gradscope.target.infer.guess import BATCH, Candidate, Guess, Mark

DECODER_TOKENS = 8
"""Tokens for a decoder, fewer than for the encoder so that no shape fits by chance."""
MOST_OTHERS = 5
"""Ways to give a picture or a sound that are tried beside a text."""
RANK_COST, LABEL_COST = 0.3, 0.4
"""Costs of the second kind of input against the first, and of going without labels."""
PAIRED = {"vision_pos_embeds": "vision_features"}
"""Inputs that may be left out by their signature alone: each goes with another."""
PLACE_MASKS = ("image_embeds_position_mask",)
"""Inputs that say where pictures stand in a text, for models without placeholder tokens."""
TEXT_AXES = 2
"""Axes of the ids of a text: samples and tokens."""
PLACEHOLDER_COUNTS = (
    "num_query_tokens", "latent_query_num", "image_seq_length", "mm_tokens_per_image", "num_image_tokens",
)  # fmt: skip
"""Settings that say how many tokens one picture takes in a text."""


def guesses(cls: type[nn.Module], config: Any, *, partial: bool = False) -> Iterator[tuple[float, Candidate]]:
    """Yield candidates, best first: every kind of input the signature suggests, with and without labels.

    Args:
        cls: The model class.
        config: Its configuration.
        partial: False for inputs that use all of a model, such as a text with a picture; True for those that leave a
            part of it idle, where a model takes several kinds.
    """
    parameters = inspect.signature(cls.forward).parameters
    facts = read_facts(config, cls.forward)
    for rank, inputs in enumerate(_kinds(parameters, facts, partial)):
        filled = {**inputs, **_required(parameters, inputs, facts)}
        for extra, more in enumerate(_with_targets(cls, parameters, filled, facts)):
            yield RANK_COST * rank + LABEL_COST * extra, tuple({**more, **_switches(parameters)}.items())


def feeds_several(cls: type[nn.Module]) -> bool:
    """Whether a model takes a text and something else beside it."""
    parameters = inspect.signature(cls.forward).parameters
    return "input_ids" in parameters and any(name in parameters for name in (*PICTURE_NAMES, *AUDIO_NAMES))


def _kinds(parameters: Mapping[str, Any], facts: Facts, partial: bool) -> Iterator[dict[str, Guess]]:
    """Yield sets of inputs of one kind each: text, pictures, sound, flat patches, hidden states."""
    text = _text(parameters, facts) if "input_ids" in parameters else {}
    several = bool(text) and any(name in parameters for name in (*PICTURE_NAMES, *AUDIO_NAMES))
    seen = list(pictures(parameters, facts))
    heard = list(sounds(parameters, facts))
    if several and not partial:
        yield from _several(text, seen[:MOST_OTHERS], heard[:MOST_OTHERS], parameters, facts)
        return
    if "past_values" in parameters:
        yield from _series(parameters, facts.config)
    if text:
        yield text
        yield from _codes(text, facts)
        yield {**text, "input_ids": Guess("ids", (BATCH, 2 * TOKENS), high=facts.vocab, low=LOWEST_ID)}
    yield from seen
    yield from heard
    if not text and not seen and not heard:
        yield {}
    first = next((name for name in parameters if name != "self"), "hidden_states")
    if first not in ("input_ids", *PICTURE_NAMES, *AUDIO_NAMES):
        for shape in ((BATCH, TOKENS, facts.width), (BATCH, facts.width), (BATCH, facts.width, TOKENS)):
            yield {first: Guess("float", shape)}


def _several(
    text: dict[str, Guess],
    seen: list[dict[str, Guess]],
    heard: list[dict[str, Guess]],
    parameters: Mapping[str, Any],
    facts: Facts,
) -> Iterator[dict[str, Guess]]:
    """Yield texts with place for what is beside them: a picture and a sound, or one of the two."""
    is_video = facts.image_token is None or "pixel_values" not in parameters
    picture = Mark(facts.video_token, 0, flag=VIDEO_FLAG) if is_video and facts.video_token is not None else None
    picture = picture or (Mark(facts.image_token, 0) if facts.image_token is not None else None)
    sound = Mark(facts.audio_token, 0, flag=SOUND_FLAG) if facts.audio_token is not None else None
    counts = _placeholder_counts(facts.config)
    for one, other in itertools.product(seen[:1], heard[:2]):
        yield {**_with_place(text, (picture, sound), counts[0], parameters), **one, **other}
    for others, mark in ((seen, picture), (heard, sound)):
        for other, count in itertools.product(others, counts):
            yield {**_with_place(text, (mark,), count, parameters), **other}


def _series(parameters: Mapping[str, Any], config: Any) -> Iterator[dict[str, Guess]]:
    """Past and future of a time series: one variable with lags and time features, or several cut into patches."""
    past, future = number_in(config, "context_length", default=32), number_in(config, "prediction_length", default=4)
    if (lags := getattr(config, "lags_sequence", None)) is None:
        variables = number_in(config, "num_input_channels", "input_size", default=1)
        known = {"past_values": Guess("float", (BATCH, past, variables))}
        yield (
            {**known, "future_values": Guess("float", (BATCH, future, variables))}
            if "future_values" in parameters
            else known
        )
        yield known
        return
    length, features = past + max(lags), number_in(config, "num_time_features", default=1)
    yield {
        "past_values": Guess("float", (BATCH, length)),
        "past_time_features": Guess("float", (BATCH, length, features)),
        "past_observed_mask": Guess("mask", (BATCH, length)),
        "future_values": Guess("float", (BATCH, future)),
        "future_time_features": Guess("float", (BATCH, future, features)),
    }


def _text(parameters: Mapping[str, Any], facts: Facts) -> dict[str, Guess]:
    made = {"input_ids": Guess("ids", (BATCH, TOKENS), high=facts.vocab, low=min(LOWEST_ID, facts.vocab - 1))}
    if "attention_mask" in parameters:
        made["attention_mask"] = Guess("mask", (BATCH, TOKENS))
    if "bbox" in parameters:
        made["bbox"] = Guess("boxes", (BATCH, TOKENS, 4))
    return made


def _codes(text: dict[str, Guess], facts: Facts) -> Iterator[dict[str, Guess]]:
    """Several tokens a moment: one of each code book of a sound, with or without one of a text."""
    books = number_in(facts.config, "num_codebooks", "num_quantizers", default=0)
    for count in (books, books + 1) if books else ():
        yield {**text, "input_ids": replace(text["input_ids"], shape=(BATCH, TOKENS, count))}


def _placeholder_counts(config: Any) -> tuple[int, ...]:
    """How many placeholders one picture may take in a text: as the configuration says, or one a patch."""
    return tuple(dict.fromkeys(n for n in (number_in(config, *PLACEHOLDER_COUNTS, default=0), GRID * GRID) if n))


def _with_place(
    text: dict[str, Guess], kinds: tuple[Mark | None, ...], count: int, parameters: Mapping[str, Any]
) -> dict[str, Guess]:
    """Make place in a text for `count` features of each of something else: by placeholders, or by a mask beside it."""
    marks = tuple(replace(mark, count=count) for mark in kinds if mark is not None)
    mask = next((name for name in PLACE_MASKS if name in parameters), None)
    if marks:
        length = TOKENS + count * len(marks)
        return {
            name: Guess(g.kind, (BATCH, length, *g.shape[2:]), g.high, low=g.low, marks=marks)
            for name, g in text.items()
        }
    if mask is None:
        return text
    return {**text, mask: Guess("marks", (BATCH, TOKENS), marks=(Mark(0, min(count, TOKENS - 2)),))}


def _required(parameters: Mapping[str, Any], inputs: Mapping[str, Guess], facts: Facts) -> dict[str, Guess]:
    """Fill parameters without a default, and few usual ones, by their names."""
    made: dict[str, Guess] = {}
    length = next((g.shape[1] for name, g in inputs.items() if name == "input_ids"), TOKENS)
    marks = next((g.marks for name, g in inputs.items() if name == "input_ids"), ())
    if marks and "mm_token_type_ids" in parameters:
        made["mm_token_type_ids"] = Guess("marks", (BATCH, length), marks=marks)
    for name, parameter in parameters.items():
        is_needed = parameter.default is parameter.empty or (name in PAIRED and PAIRED[name] in parameters)
        if name in ("self", *inputs) or not is_needed:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        made[name] = named(name, length, facts, facts.told.get(name))
    return made


def _with_targets(
    cls: type[nn.Module], parameters: Mapping[str, Any], inputs: dict[str, Guess], facts: Facts
) -> Iterator[dict[str, Guess]]:
    """Yield the inputs with labels, with a decoder's inputs, and as they are."""
    decoder = {"decoder_input_ids": Guess("ids", (BATCH, DECODER_TOKENS), high=facts.vocab, low=LOWEST_ID)}
    if "labels" in parameters and (labels := _labels(cls.__name__, parameters, inputs, facts)):
        yield {**inputs, "labels": labels}
        if "decoder_input_ids" in parameters:
            yield {**inputs, **decoder, "labels": labels}
    if "return_loss" in parameters:
        yield {**inputs, "return_loss": Guess("constant", value=True)}
    if "decoder_input_ids" in parameters:
        yield {**inputs, **decoder}
    yield inputs


def _labels(name: str, parameters: Mapping[str, Any], inputs: Mapping[str, Guess], facts: Facts) -> Guess | None:
    classes = max(int(getattr(facts.config, "num_labels", 2) or 2), 2)
    if re.search(r"(Image|Sequence|Video|Audio)Class|WithTeacher|XVector", name):
        return Guess("ids", (BATCH,), high=classes)
    picture = next((g for n, g in inputs.items() if n in PICTURE_NAMES), None)
    if "Segmentation" in name and picture is not None:
        return Guess("ids", (BATCH, *picture.shape[-2:]), high=classes)
    if re.search(r"Detection|Depth|Keypoint|Matting|Teacher", name):
        return None
    if "CTC" in name:
        return Guess("ids", (BATCH, 6), high=20, low=LOWEST_ID)
    told = facts.told.get("labels")
    if told is not None and told.kind == "ids" and len(told.shape) > TEXT_AXES:  # one of each code book
        return replace(told, high=facts.vocab, low=LOWEST_ID)
    if getattr(facts.config, "is_encoder_decoder", False) or "decoder_input_ids" in parameters:
        return Guess("ids", (BATCH, DECODER_TOKENS), high=facts.vocab, low=LOWEST_ID)
    text = inputs.get("input_ids")
    high = classes if "TokenClass" in name else facts.vocab
    return Guess("ids", text.shape, high=high, low=min(LOWEST_ID, high - 1)) if text is not None else None


def _switches(parameters: Mapping[str, Any]) -> dict[str, Guess]:
    """Turn caches off: they only cost memory in training."""
    return {"use_cache": Guess("constant", value=False)} if "use_cache" in parameters else {}
