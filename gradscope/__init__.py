"""Gradient flow of any PyTorch model: where gradients vanish or explode, why, and which change fixes it.

gradscope.inspect(model_or_target)      load, measure and judge
gradscope.watch(model, every=100)       watch a training loop of your own
gradscope.load(target)                  model, batches and loss of a target string
gradscope.Recording                     what was measured; save, load, to_frames
gradscope.Finding                       one finding of a rule
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradscope.version import __version__

__all__ = ["Finding", "Inspection", "Recording", "__version__", "inspect", "load", "watch"]

if TYPE_CHECKING:
    from gradscope.inspection import Inspection, inspect
    from gradscope.probe.watch import watch
    from gradscope.record import Recording
    from gradscope.rules.finding import Finding
    from gradscope.target import load

_HOMES = {
    "Finding": "gradscope.rules.finding",
    "Inspection": "gradscope.inspection",
    "Recording": "gradscope.record",
    "inspect": "gradscope.inspection",
    "load": "gradscope.target",
    "watch": "gradscope.probe.watch",
}


def __getattr__(name: str) -> Any:
    # Late, so that `import gradscope` loads neither torch nor pandas.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
