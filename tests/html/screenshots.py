"""Take the pictures of the report that the documentation shows: `python -m tests.html.screenshots docs/images`.

The models are built-in ones, so that anyone can take the same pictures again; needs torch and Debian's chromium.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.report.html import write
from gradscope.rules import diagnose
from gradscope.variants import subject
from tests.html.browser import Browser

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "pre-ln": ("pre-ln", {"layers": 12}),
    "no-residual": ("no-residual", {"layers": 12}),
    "post-ln": ("post-ln", {"layers": 24}),
    "resnet": ("resnet152", {"shortcut": False}),
}
PICTURES = (
    ("verdict", "no-residual", "#verdict", "light"),
    ("depth", "no-residual", "#profile", "light"),
    ("depth-exploding", "resnet", "#profile", "dark"),
    ("healthy", "pre-ln", "#verdict", "light"),
    ("residual-flow", "pre-ln", "#flow", "light"),
    ("steps", "post-ln", "#heatmap", "light"),
    ("signal", "no-residual", "#signal", "light"),
    ("precision", "post-ln", "#precision", "light"),
    ("updates", "no-residual", "#updates", "light"),
    ("modules", "post-ln", "#modules", "dark"),
)
"""(picture, model, section, theme)."""
WIDTH = 900
MAX_HEIGHT = 760


def main(folder: Path) -> None:
    """Measure the models, open their reports and save one picture a view."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        reports = {name: Path(scratch) / f"{name}.html" for name in MODELS}
        for name, (variant, arguments) in MODELS.items():
            recording = measure(subject(variant, arguments, 0), ProbeSettings())
            write(recording, diagnose(recording), reports[name])
        browser = Browser()
        try:
            for picture, model, section, theme in PICTURES:
                _take(browser, reports[model], section, theme, folder / f"report-{picture}.png")
        finally:
            browser.close()


def _take(browser: Browser, report: Path, section: str, theme: str, path: Path) -> None:
    browser.size(WIDTH, 1600)
    browser.scheme(theme)
    browser.open(report)
    browser.wait_for("document.documentElement.dataset.ready === 'all'", 60)
    browser.run("document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant'})", section)
    browser.wait_for(
        f"[...document.querySelectorAll('{section} .chart[id]')].every(b => b.classList.contains('ready'))", 30
    )
    box = browser.run(
        "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return {x: b.x, y: b.y + scrollY, width: b.width, height: Math.min(b.height, arguments[1]), scale: 1}",
        section,
        MAX_HEIGHT,
    )
    data = browser.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=box)["data"]
    path.write_bytes(base64.b64decode(data))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
