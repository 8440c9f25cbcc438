"""What to measure, decided: the command line over the target's own settings over the project's over the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradscope.cli.arguments import parse_arguments
from gradscope.cli.options import MeasuringOptions
from gradscope.config import Config, check_choice, find_config, load_config
from gradscope.errors import ConfigError


@dataclass(frozen=True)
class Request:
    """One target with everything that says how to load and step it.

    Attributes:
        name: What the user calls it: a declared name or the target itself.
        target: The target string.
        arguments: Factory arguments.
        settings: Measuring settings by their configuration key; a missing one keeps its default.
    """

    name: str
    target: str
    arguments: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def seed(self) -> int | None:
        """The seed, None where it is to be left alone."""
        seed = self.settings.get("seed", 0)
        return None if seed == "none" else int(seed)


def configuration(options: MeasuringOptions) -> Config:
    """Load the file the user named, or the nearest one."""
    if options.config is not None and not options.config.is_file():
        raise ConfigError(f"no such configuration file: {options.config}.")
    return load_config(options.config or find_config(Path.cwd()))


def request_for(name: str, options: MeasuringOptions, config: Config) -> Request:
    """Combine the sources of settings for a target or a declared name."""
    declared = config.targets.get(name)
    arguments = dict(declared.arguments) if declared else {}
    arguments.update(parse_arguments(options.argument or ()))
    settings = {
        **{key: value for key, value in config.settings.items() if key in _KEYS},
        **(declared.settings if declared else {}),
        **_given(options),
    }
    return Request(name, declared.target if declared else name, arguments, settings)


_KEYS = {
    "inputs": "inputs", "loss": "loss", "input": "input_spec", "weights": "weights", "seed": "seed", "steps": "steps",
    "watch": "watch", "optimizer": "optimizer", "lr": "lr", "device": "device", "dtype": "dtype", "mode": "mode",
    "level": "level", "jacobian": "jacobian",
}  # fmt: skip
"""Configuration key to the option that overrides it."""


def _given(options: MeasuringOptions) -> dict[str, Any]:
    """Return what stands on the command line, checked and under its configuration key."""
    given = {key: getattr(options, field) for key, field in _KEYS.items() if getattr(options, field) is not None}
    if options.deep:
        given["level"] = "deep"
    if "watch" in given:
        given["watch"] = _steps(given["watch"])
    if "seed" in given:
        given["seed"] = _seed(given["seed"])
    for key in ("optimizer", "dtype", "mode", "level"):
        if key in given:
            check_choice(key, given[key], "--")
    return given


def _steps(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() for word in words):
        raise ConfigError(f"--watch {text} is not understood.", rule="Steps are whole numbers.", hint="--watch 0,3,10")
    return sorted({int(word) for word in words})


def _seed(text: str) -> int | str:
    if text.lower() == "none":
        return "none"
    if not text.isdecimal():
        raise ConfigError(f"--seed {text} is not understood.", rule="A seed is a whole number from 0, or 'none'.")
    return int(text)


def thresholds_for(options: MeasuringOptions, config: Config) -> dict[str, float]:
    """Return the thresholds in force: those of the configuration under those of --set."""
    found = dict(config.thresholds)
    for word in options.thresholds or ():
        name, sign, value = word.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            sign = ""
        if not sign or "." not in name:
            raise ConfigError(
                f"--set {word} is not understood.", rule="It is CODE.NAME=number.", hint="--set GS101.decades=3"
            )
    return found
