"""The Python face of `gradscope inspect`: load, measure and judge in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradscope.probe.settings import ProbeSettings
from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis, Finding

if TYPE_CHECKING:
    from torch import Tensor, nn


_TEXT_WIDTH = 100
"""Columns of the report as text, where there is no terminal to ask."""


@dataclass(frozen=True)
class Inspection:
    """What was measured and what it means.

    Attributes:
        recording: The measurements.
        diagnosis: The verdict with its findings.
    """

    recording: Recording
    diagnosis: Diagnosis

    @property
    def verdict(self) -> str:
        """will-train, at-risk, will-not-train or cannot-say."""
        return self.diagnosis.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, errors first."""
        return self.diagnosis.findings

    def __str__(self) -> str:
        """The terminal report as plain text."""
        from io import StringIO

        from rich.console import Console

        from gradscope.report.terminal import render

        text = StringIO()
        render(self.recording, self.diagnosis, Console(file=text, width=_TEXT_WIDTH, color_system=None))
        return text.getvalue()

    def _repr_html_(self) -> str:
        html: str = self.recording._repr_html_()
        return html

    def write_html(self, path: str) -> None:
        """Write the report as one HTML file."""
        from gradscope.report.html import write

        write(self.recording, self.diagnosis, path)


def inspect(
    target: str | nn.Module,
    inputs: Any = None,
    loss: Callable[[Any, Any], Tensor] | None = None,
    *,
    arguments: dict[str, Any] | None = None,
    settings: ProbeSettings | None = None,
    **options: Any,
) -> Inspection:
    """Inspect a target string or a model at hand.

    Args:
        target: What `gradscope inspect` takes, or a module.
        inputs: For a module: one batch (a tuple is passed as positional arguments, a dict as keywords, a tensor alone),
            or a list of batches or a DataLoader. Found by itself when left out.
        loss: For a module: `loss(output, batch)` to a scalar. Found by itself when left out.
        arguments: For a target string: factory arguments.
        settings: How to step and watch.
        **options: Fields of `ProbeSettings`, as a short form of `settings`.

    Returns:
        The recording with its diagnosis. The model is afterwards what it was before.

    Raises:
        GradscopeError: The target, its inputs or its loss cannot be used; the message says what would.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> inspect(net, torch.randn(16, 4), num_steps=1).recording.watched_steps
        [0]
    """
    from gradscope.probe import measure
    from gradscope.rules import diagnose
    from gradscope.target import load

    if options:
        settings = ProbeSettings(**{**(vars(settings) if settings else {}), **options})
    settings = settings or ProbeSettings()
    if isinstance(target, str):
        subject = load(target, arguments=arguments or {}, seed=settings.seed, mode=settings.mode)
    else:
        from gradscope.target import from_module

        subject = from_module(target, inputs, loss)
    recording = measure(subject, settings)
    return Inspection(recording, diagnose(recording))

