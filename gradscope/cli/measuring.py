"""Measure one target: load it, step it, return the recording. The only place of the commands that needs torch."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from gradscope.cli.progress import showing_progress
from gradscope.cli.request import Request
from gradscope.errors import ConfigError, MissingLibraryError
from gradscope.probe.settings import DEFAULT_WATCHED_STEPS, ProbeSettings
from gradscope.record import Recording

if TYPE_CHECKING:
    from gradscope.target.subject import Subject


def measured(request: Request) -> Recording:
    """Load and measure; what the user's code prints goes to stderr, so that stdout carries the result alone.

    Ctrl-C while steps are taken returns what had been measured, marked partial.
    """
    settings = probe_settings(request)
    require_torch()
    with showing_progress(f"loading {request.name}") as progress, redirect_stdout(sys.stderr):
        from gradscope.probe import MeasurementInterrupted, measure
        from gradscope.target.stage import listening

        with listening(lambda stage: progress(f"{request.name}: {stage}", 0, 0)):
            subject = loaded(request, settings)
        try:
            return measure(subject, settings, progress)
        except MeasurementInterrupted as stopped:
            return stopped.recording


def require_torch() -> None:
    """Raise where torch is not installed.

    Raises:
        MissingLibraryError: It is not.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingLibraryError(
            "measuring needs torch, which is not installed.",
            rule="Saved runs can be shown and judged without it.",
            hint="pip install torch",
        )


def loaded(request: Request, settings: ProbeSettings) -> Subject:
    """Load what was asked for."""
    from gradscope.target import load

    return load(
        request.target,
        arguments=dict(request.arguments),
        inputs=request.settings.get("inputs"),
        loss=request.settings.get("loss"),
        input_spec=request.settings.get("input"),
        weights=request.settings.get("weights"),
        seed=request.seed,
        mode=settings.mode,
    )


def probe_settings(request: Request) -> ProbeSettings:
    """Translate the request into the probe's settings."""
    given = request.settings
    watched, num_steps = _watched(given.get("steps"), given.get("watch"))
    defaults = ProbeSettings()
    return ProbeSettings(
        num_steps=num_steps,
        watched_steps=watched,
        optimizer=given.get("optimizer", defaults.optimizer),
        lr=float(given.get("lr", defaults.lr)),
        device=given.get("device", defaults.device),
        dtype=given.get("dtype"),
        mode=given.get("mode", defaults.mode),
        seed=request.seed,
        level=given.get("level", defaults.level),
        jacobian=given.get("jacobian", defaults.jacobian),
    )


def _watched(steps: int | None, watch: list[int] | None) -> tuple[tuple[int, ...], int]:
    """Return the watched steps and how many to take: the defaults that fit, and the last one."""
    if watch is not None:
        num_steps = steps or watch[-1] + 1
        if watch[-1] >= num_steps:
            raise ConfigError(
                f"step {watch[-1]} is to be watched, but only {num_steps} steps are taken (0 to {num_steps - 1}).",
                hint=f"--steps {watch[-1] + 1}",
            )
        return tuple(watch), num_steps
    num_steps = steps or DEFAULT_WATCHED_STEPS[-1] + 1
    fitting = {step for step in DEFAULT_WATCHED_STEPS if step < num_steps}
    return tuple(sorted(fitting | {num_steps - 1})), num_steps
