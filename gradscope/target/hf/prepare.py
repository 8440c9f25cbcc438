"""Prepare the configuration for one attempt: made small, mended, and with the parameters of its model counted."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gradscope.target.hf.agree import configured
from gradscope.target.hf.missing import name_missing_tokens
from gradscope.target.hf.repair import built
from gradscope.target.hf.scale import common_factor, few_blocks
from gradscope.target.hf.settings import parts_of
from gradscope.target.hf.shrink import IN_STEP, SMALL, tiny

MOST_PARAMETERS = 300_000_000
"""More than that, with widths kept, is too much for a step of a second."""
NEEDS_NUMBERS = "meta"
"""What PyTorch says where a constructor computes with its parameters, which have no numbers while they are counted."""


@dataclass(frozen=True)
class Prepared:
    """A configuration that a model can be built from, as far as that can be told without building it.

    Attributes:
        config: The configuration.
        num_parameters: Parameters of its model; None where they cannot be counted without being made.
    """

    config: Any
    num_parameters: int | None

    @property
    def is_large(self) -> bool:
        """Whether it has more parameters than an example should."""
        return (self.num_parameters or 0) > MOST_PARAMETERS


def prepared(
    config_class: type, given: Mapping[str, Any], cls: type, level: int, *, opens: bool = False
) -> Prepared:
    """Return a configuration of a level for a class; in step, divided as far as the class can be built.

    Sizes that are open and whose names say nothing are filled if `opens`.

    Raises:
        Exception: What the configuration raised, or the class at a size that is too dear to be tried for nothing.
    """
    factor = common_factor(configured(config_class, {})) if level == IN_STEP else 1
    while factor > 1:
        try:
            return _counted(cls, _named(config_class, given, cls, level, factor), opens=opens)
        except Exception:  # sizes that do not fit raise anything; half the divisor may fit
            factor //= 2
    config = _named(config_class, given, cls, level, factor)
    try:
        ready = _counted(cls, config, opens=opens)
        return _counted(cls, few_blocks(ready.config), opens=opens) if ready.is_large and level == SMALL else ready
    except Exception:  # what is wrong is told where the model is built
        if level not in (SMALL, IN_STEP):
            raise
        return Prepared(config, None)


def _named(config_class: type, given: Mapping[str, Any], cls: type, level: int, factor: int) -> Any:
    config = _own_part(tiny(config_class, given, level, factor), cls)
    name_missing_tokens(config, cls)
    return config


def _own_part(config: Any, cls: type) -> Any:
    """Return the part of a composite configuration that a class is built from, where it is one of its parts alone."""
    wanted = getattr(cls, "config_class", None)
    if not isinstance(wanted, type) or isinstance(config, wanted):
        return config
    return next((part for part in parts_of(config).values() if type(part) is wanted), config)


def _counted(cls: Any, config: Any, *, opens: bool) -> Prepared:
    """Count the parameters of a model without making them, mending its configuration as far as that needs it."""
    mended = copy.deepcopy(config)
    try:
        with torch.device("meta"):
            sizes = [parameter.numel() for parameter in built(cls, mended, opens=opens).parameters()]
    except Exception as error:
        if NEEDS_NUMBERS not in str(error) and not isinstance(error, NotImplementedError):
            raise
        return Prepared(config, None)
    if 0 in sizes:
        raise ValueError("A layer has no width left.")
    return Prepared(mended, sum(sizes))
