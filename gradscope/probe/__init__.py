"""Watch a step of any model: attach, measure on the device, record, and leave nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradscope.probe.interrupted import MeasurementInterrupted
    from gradscope.probe.step import measure

__all__ = ["MeasurementInterrupted", "measure"]

_HOMES = {"measure": "gradscope.probe.step", "MeasurementInterrupted": "gradscope.probe.interrupted"}


def __getattr__(name: str) -> Any:
    # Late, so that reading the settings loads no torch.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
