"""Through time: the gradient of a module that is called again and again, call by call."""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.columns import log10_ratio
from gradscope.metrics.facts import Facts
from gradscope.metrics.time import TimeProfile
from gradscope.report.html.chart import DOTS_UP_TO, Axis, Chart, Mark, Role, Series
from gradscope.report.html.sharing import shorten
from gradscope.report.html.views.places import shown_name
from gradscope.report.html.wording import compared
from gradscope.rules.finding import Diagnosis

MAX_LINES = 4
FEWEST_GRADIENTS = 3
"""Calls with a gradient that make a line; a module whose last call alone is used has none through time."""
ROLES: tuple[Role, ...] = ("main", "branch", "third", "other")


def time_chart(facts: Facts, diagnosis: Diagnosis) -> Chart | None:
    """Draw the gradient per call of the modules that are called most; None where none is called repeatedly."""
    blamed = {finding.module for finding in diagnosis.findings if finding.code == "GS107"}
    profiles = [profile for profile in facts.time_profiles if sum(map(bool, profile.grad_norm)) >= FEWEST_GRADIENTS]
    profiles.sort(key=lambda profile: (profile.module not in blamed, -len(profile.grad_norm)))
    profiles = profiles[:MAX_LINES]
    if not profiles:
        return None
    layers = [_line(profile, role) for profile, role in zip(profiles, ROLES, strict=False)]
    return Chart(
        "chart-time",
        "Gradient through time, call by call",
        lead(profiles[0]),
        Axis("call: first → last"),
        Axis("gradient, relative to the last call", log=True),
        tuple(layers),
        _marks(diagnosis, profiles, layers),
        height=300,
    )


def lead(profile: TimeProfile) -> str:
    """Say how the gradient changes from the last call to the first."""
    return (
        f"{shorten(shown_name(profile.module), 60)} is called {len(profile.grad_norm)} times; at its first call the "
        f"gradient is {compared(profile.decades)} its last."
    )


def _line(profile: TimeProfile, role: Role) -> Series:
    last = next((norm for norm in reversed(profile.grad_norm) if norm), None)
    heights = [log10_ratio(norm, last) for norm in profile.grad_norm]
    return Series(shown_name(profile.module), range(len(heights)), heights, role, dots=len(heights) <= DOTS_UP_TO)


def _marks(diagnosis: Diagnosis, profiles: Sequence[TimeProfile], layers: Sequence[Series]) -> tuple[Mark, ...]:
    found = []
    for place, finding in enumerate(diagnosis.findings, start=1):
        for profile, layer in zip(profiles, layers, strict=True):
            height = next((y for y in layer.y if y is not None), None)
            if finding.code == "GS107" and finding.module == profile.module and height is not None:
                found.append(Mark(0, height, "GS107", href=f"#finding-{place}", below=height < 0))
    return tuple(found[:1])
