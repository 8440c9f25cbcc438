"""pytest: the fixture `gradscope`, the assertion it offers, and the marker that sets its rules.

Loaded by pytest through its entry point; torch is not imported before a test asserts something.

    def test_flow(gradscope):
        gradscope.assert_gradient_flow(build_model(), torch.randn(8, 32), loss=my_loss, select=["GS1"])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradscope.gate.outcome import Outcome

MARKER = "gradscope"
_MARKER_HELP = (
    "gradscope(select=..., ignore=..., fail_on=..., **settings): which rules the fixture `gradscope` applies, and how "
    "it steps the model"
)
_WIDTH = 96
"""Columns of the report in a failure: pytest sets it in by four."""


@dataclass(frozen=True)
class GradientFlow:
    """What the fixture offers; `defaults` come from the marker."""

    defaults: Mapping[str, Any] = field(default_factory=dict)

    def assert_gradient_flow(
        self, model: Any, inputs: Any = None, loss: Callable[[Any, Any], Any] | None = None, **options: Any
    ) -> Outcome:
        """Fail the test where the model's gradient flow has a finding that counts; see `assert_gradient_flow`."""
        __tracebackhide__ = True
        return assert_gradient_flow(model, inputs, loss, **{**self.defaults, **options})


@pytest.fixture
def gradscope(request: pytest.FixtureRequest) -> GradientFlow:
    """Assert that gradients flow: `gradscope.assert_gradient_flow(model, inputs, loss=...)`."""
    defaults: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError("pytest.mark.gradscope takes keywords only, such as select=['GS1'].")
        defaults.update(marker.kwargs)
    return GradientFlow(defaults)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER_HELP)


def assert_gradient_flow(
    model: Any,
    inputs: Any = None,
    loss: Callable[[Any, Any], Any] | None = None,
    *,
    select: Sequence[str] | str = ("ALL",),
    ignore: Sequence[str] | str = (),
    fail_on: str = "error",
    thresholds: Mapping[str, float] | None = None,
    arguments: dict[str, Any] | None = None,
    **settings: Any,
) -> Outcome:
    """Fail with the terminal report where the model's gradient flow has a finding that counts.

    Args:
        model: A module, or a target string such as "model.py:build".
        inputs: One batch, several, or a DataLoader; found by itself when left out.
        loss: `loss(output, batch)` to a scalar; found by itself when left out.
        select: Codes or prefixes that count.
        ignore: Codes or prefixes that do not.
        fail_on: error, warning or never.
        thresholds: Levels that replace defaults, by "CODE.name".
        arguments: For a target string: factory arguments.
        settings: Fields of `ProbeSettings`: `num_steps`, `optimizer`, `lr`, `seed`, `device`, ...

    Returns:
        What was judged, for further assertions.

    Raises:
        AssertionError: There is such a finding; the message is the report.
        GradscopeError: The model, its inputs or its loss cannot be used, or an option is wrong.
    """
    __tracebackhide__ = True
    from gradscope import inspect
    from gradscope.gate.outcome import fail_level, judge
    from gradscope.gate.selection import Selection, check_codes, split_codes
    from gradscope.report.rulebook import ALL_RULES
    from gradscope.rules.verdict import diagnose

    chosen, ignored = (split_codes([codes] if isinstance(codes, str) else codes) for codes in (select, ignore))
    check_codes([*chosen, *ignored], [rule.code for rule in ALL_RULES])
    level = fail_level(fail_on)
    inspection = inspect(model, inputs, loss, arguments=arguments, **settings)
    diagnosis = diagnose(inspection.recording, thresholds) if thresholds else inspection.diagnosis
    name = inspection.recording.provenance.target
    outcome = judge(
        name,
        inspection.recording,
        diagnosis,
        selection=Selection(chosen, ignored),
        fail_on=level,
    )
    if outcome.failing:
        raise AssertionError(_message(outcome))
    return outcome


def _message(outcome: Outcome) -> str:
    from gradscope.report.console import rendered
    from gradscope.report.terminal import render

    codes = ", ".join(dict.fromkeys(finding.code for finding in outcome.failing))
    report = rendered(lambda console: render(outcome.recording, outcome.diagnosis, console), None, _WIDTH)
    return f"gradient flow: {codes}\n\n{report}"
