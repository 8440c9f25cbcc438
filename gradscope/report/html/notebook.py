"""A recording in a notebook: a short static picture of it, and plotly figures on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from gradscope.errors import ConfigError
from gradscope.metrics.facts import Facts
from gradscope.record import Recording
from gradscope.report.html.chart import Figure
from gradscope.report.html.document import asset, environment
from gradscope.report.html.panel import Picture
from gradscope.report.html.plot import NAMES, spec
from gradscope.report.html.raster import DIVERGING
from gradscope.report.html.sharing import shareable
from gradscope.report.html.views.panels import model_panels
from gradscope.report.html.views.profile import profile_panel
from gradscope.report.html.views.verdict import VERDICTS, headline_facts
from gradscope.rules import diagnose
from gradscope.rules.finding import Diagnosis

if TYPE_CHECKING:
    import plotly.graph_objects as go

LIGHT = {
    "ink": "#1a1f26",
    "soft": "#56606b",
    "line": "#d5dae0",
    "grid": "#e6e9ed",
    "main": "#0b5fa5",
    "law": "#6d7681",
    "bad": "#b3360b",
    "good": "#006b52",
    "faint": "#8b95a1",
    "skip": "#0b5fa5",
    "branch": "#c2570c",
    "other": "#7b3fa0",
    "third": "#006b52",
}
"""The light theme of the style sheet, for figures that live outside a page."""
MAX_FINDINGS = 8


def repr_html(recording: Recording) -> str:
    """Return the verdict, the findings and the depth profile of a recording as static HTML, without scripts."""
    recording = shareable(recording)
    facts, diagnosis = Facts(recording), diagnose(recording)
    words, style = VERDICTS[diagnosis.verdict]
    profile = profile_panel(facts, diagnosis)
    return (
        environment()
        .get_template("notebook.html.jinja")
        .render(
            words=words,
            style=style,
            diagnosis=diagnosis,
            facts=headline_facts(facts, diagnosis)[:8],
            run=recording.provenance,
            findings=diagnosis.findings[:MAX_FINDINGS],
            more=max(len(diagnosis.findings) - MAX_FINDINGS, 0),
            pictures=[part for part in profile.parts if isinstance(part, Picture)],
            missing=profile.missing,
            css=Markup(asset("notebook.css")),
        )
    )


def figure(recording: Recording, view: str = "profile") -> go.Figure:
    """Return one view of a recording as a plotly figure.

    Args:
        recording: What was measured.
        view: The name of a chart: profile, ratio, share, cosine, heatmap, magnitudes, updates, token-cosine, ...

    Raises:
        ConfigError: There is no such view, or the recording has no data for it.
    """
    import plotly.graph_objects as go

    recording = shareable(recording)
    charts = figures(Facts(recording), diagnose(recording))
    if view not in charts:
        raise ConfigError(
            f"this recording has no view {view!r}.",
            rule=f"It has: {', '.join(charts) or 'none'}.",
            hint=f"recording.figure({next(iter(charts), 'profile')!r})",
        )
    drawn = coloured(_named(spec(charts[view])))
    drawn["layout"] |= {
        "showlegend": len(drawn["data"]) > 1,
        "title": {"text": charts[view].title},
        "margin": {"t": 60},
    }
    return go.Figure(data=drawn["data"], layout=drawn["layout"])


def _named(drawn: dict[str, Any]) -> dict[str, Any]:
    """Put the names of the places where the page's script would put them."""
    names = drawn["names"]["x"]
    for trace in drawn["data"]:
        if trace.get("text") == NAMES:
            trace["text"] = [names[place] for place in trace.get("x", range(len(names)))]
    return drawn


def figures(facts: Facts, diagnosis: Diagnosis) -> dict[str, Figure]:
    """List the charts of all views by the name that `figure` takes."""
    panels = model_panels(facts, diagnosis)
    parts = [part.figure for panel in panels for part in panel.parts if isinstance(part, Picture) and part.figure]
    return {figure.id.removeprefix("chart-"): figure for figure in parts}


def coloured(value: Any) -> Any:
    """Replace the colour roles of a chart description by the colours of the light theme."""
    if isinstance(value, dict):
        return {key: item if key in ("text", "ticktext", "z") else coloured(item) for key, item in value.items()}
    if isinstance(value, list):
        return [coloured(item) for item in value]
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    if value == "@diverging":
        return [[place / (len(DIVERGING) - 1), f"rgb{shade}"] for place, shade in enumerate(DIVERGING)]
    name, _, alpha = value[1:].partition("/")
    red, green, blue = (int(LIGHT[name][at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})" if alpha else LIGHT[name]
