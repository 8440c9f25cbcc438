"""Put a page together: one frame for all documents, one compressed payload, one policy that lets nothing out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gradscope.report.html import wording
from gradscope.report.html.bundle import packed, plotly_bundle, script_hash
from gradscope.report.html.glossary import GLOSSARY
from gradscope.report.html.panel import Panel, Picture
from gradscope.report.html.payload import Embedded
from gradscope.report.html.plot import CONFIG, spec
from gradscope.report.html.raster import DIVERGING
from gradscope.report.html.sharing import shorten
from gradscope.report.html.views.modules import sparkline
from gradscope.report.html.views.places import shown_name

POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""No network at all; scripts run only if they are, byte for byte, the ones that were put in here."""


def render(
    template: str,
    context: Mapping[str, Any],
    panels: Sequence[Panel],
    *,
    table: Mapping[str, Any] | None = None,
    recording: Embedded | None = None,
) -> str:
    """Render a document from its template, its panels and what its script needs."""
    figures = [part.figure for panel in panels for part in panel.parts if isinstance(part, Picture) and part.figure]
    charts, names = _shared_names({figure.id: spec(figure) for figure in figures})
    page = {
        "charts": charts,
        "names": names,
        "scale": [
            [place / (len(DIVERGING) - 1), f"rgb{shade}".replace(" ", "")] for place, shade in enumerate(DIVERGING)
        ],
        "config": CONFIG,
        "table": table,
    }
    theme, script = asset("theme.js"), asset("report.js")
    bundle, bundle_hash = plotly_bundle() if figures else ("", "")
    hashes = " ".join(filter(None, (script_hash(theme), script_hash(script), bundle_hash)))
    text = (
        environment()
        .get_template(template)
        .render(
            **context,
            panels=panels,
            policy=POLICY.format(scripts=hashes),
            style=Markup(asset("report.css")),
            theme=Markup(theme),
            script=Markup(script),
            page=packed(json.dumps(page, allow_nan=False, separators=(",", ":"))),
            bundle=bundle,
            recording=recording,
            glossary=GLOSSARY,
        )
    )
    return text.encode("utf-8", "replace").decode("utf-8")


def _shared_names(charts: dict[str, dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], list[list[str]]]:
    """Put equal lists of names into one table, as several charts share the same places."""
    table: dict[tuple[str, ...], int] = {}
    for chart in charts.values():
        chart["names"] = {
            axis: table.setdefault(tuple(names), len(table)) for axis, names in chart["names"].items() if names
        }
    return charts, [list(names) for names in table]


_POWER = re.compile(r"\b(10|2)\^([-−]?\d+(?:\.\d+)?)")


_EXPONENT = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e\+?([-−]?\d+)(?![\w.])")
_MINUS = re.compile(r"(?<=[\s(])-(?=\d)")


@cache
def asset(name: str) -> str:
    """Read a style sheet or script that ships with the package."""
    return files("gradscope.report.html").joinpath("assets", name).read_text(encoding="utf-8").replace("\r\n", "\n")


@cache
def environment() -> Environment:
    """Make the template environment: everything escaped, every undefined name an error."""
    made = Environment(
        loader=PackageLoader("gradscope.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": wording.number,
        "shorten": shorten,
        "prose": prose,
        "sparkline": sparkline,
        "name": shown_name,
    }
    made.globals |= {"term": term, "count": wording.count}
    return made


def term(word: str, text: str = "") -> Markup:
    """Mark a word of the glossary up: its meaning on hover and focus, a click goes to the glossary."""
    if word not in GLOSSARY:
        return escape(text or word)
    anchor = glossary_anchor(word)
    return Markup(
        '<a class="term" href="#{a}" aria-describedby="{a}-text">{w}<span class="tip" aria-hidden="true">{t}</span></a>'
    ).format(a=anchor, w=text or word, t=GLOSSARY[word])


def glossary_anchor(word: str) -> str:
    """Return the anchor of a word in the glossary."""
    return "word-" + word.lower().replace(" ", "-")


def prose(text: str, limit: int = 800) -> Markup:
    """Escape a text and set what stands between backticks as code."""
    parts = shorten(text, limit).split("`")
    if len(parts) % 2 == 0:
        parts[-2:] = [parts[-2] + "`" + parts[-1]]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else _powers(part) for place, part in enumerate(parts)
    )


def _powers(text: str) -> Markup:
    """Escape a text and set numbers as print does: 10^-5.4, 2^23 and 4e4 get raised exponents, -3 a minus sign."""
    escaped = str(escape(_MINUS.sub(wording.MINUS, text)))
    escaped = _POWER.sub(lambda found: f"{found[1]}<sup>{_raised(found[2])}</sup>", escaped)
    return Markup(_EXPONENT.sub(lambda found: f"{found[1]} × 10<sup>{_raised(found[2])}</sup>", escaped))


def _raised(exponent: str) -> str:
    return exponent.replace("-", wording.MINUS)
