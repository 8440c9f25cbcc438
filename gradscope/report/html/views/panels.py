"""All views of one model, the one that shows its gravest finding first."""

from __future__ import annotations

from gradscope.metrics.facts import Facts
from gradscope.report.html.panel import Panel
from gradscope.report.html.views.flow import flow_panel
from gradscope.report.html.views.heatmap import heatmap_panel
from gradscope.report.html.views.precision import precision_panel
from gradscope.report.html.views.profile import profile_panel
from gradscope.report.html.views.signal import signal_panel
from gradscope.report.html.views.updates import updates_panel
from gradscope.report.html.views.verdict import gravest
from gradscope.rules.finding import Diagnosis

FAMILIES = {"GS1": "profile", "GS2": "flow", "GS3": "signal", "GS4": "precision", "GS5": "updates"}
"""Which panel shows what a family of rules looks at."""
CODES = {"GS108": "signal", "GS107": "profile", "GS305": "updates", "GS405": "updates", "GS403": "precision"}
"""Rules whose evidence is in another panel than their family's."""


def model_panels(facts: Facts, diagnosis: Diagnosis) -> list[Panel]:
    """Build the views of one model."""
    panels = [
        profile_panel(facts, diagnosis),
        flow_panel(facts, diagnosis),
        heatmap_panel(facts),
        signal_panel(facts, diagnosis),
        precision_panel(facts),
        updates_panel(facts),
    ]
    main = gravest(diagnosis)
    first = panel_of(main.code, panels) if main else None
    return sorted(panels, key=lambda panel: panel is not first)


def panel_of(code: str, panels: list[Panel]) -> Panel | None:
    """Return the panel that shows what a rule looks at; None where there is none with data."""
    wanted = CODES.get(code, FAMILIES.get(code[:3]))
    return next((panel for panel in panels if panel.id == wanted and not panel.missing), None)
