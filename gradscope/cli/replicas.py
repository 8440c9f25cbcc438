"""More initialisations of one target, for an interval of D that says what a new seed would give."""

from __future__ import annotations

from dataclasses import replace

from gradscope.cli.measuring import measured
from gradscope.cli.request import Request
from gradscope.errors import ConfigError
from gradscope.record import Recording

FIRST_STEP = {"steps": 1, "watch": None, "jacobian": False, "level": "default"}
"""What the others are measured for: the gradient at initialisation, and nothing that costs more."""


def replicas(request: Request, num_seeds: int) -> list[Recording]:
    """Measure the first step of a target from the seeds that follow the request's own.

    Args:
        request: What the first was measured with.
        num_seeds: How many initialisations there are to be, the first included.

    Raises:
        ConfigError: The request has no seed to count from.
    """
    if num_seeds > 1 and request.seed is None:
        raise ConfigError("--seeds needs a seed to count from.", rule="Leave out --seed none.")
    first = request.seed or 0
    settings = {**request.settings, **FIRST_STEP}
    return [
        measured(replace(request, settings={**settings, "seed": first + number})) for number in range(1, num_seeds)
    ]
