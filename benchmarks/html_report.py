"""How fast the largest report opens: `python -m benchmarks.html_report`.

Budgets for 1,000 blocks at 50 steps on two cores: at most 3 MB, first paint after 0.4 s, interactive after 1.5 s.
Each figure is the median over cold starts of the browser.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from gradscope.report.html import write
from gradscope.rules import diagnose
from tests.html import large
from tests.html.browser import Browser

STARTS = 5


def main() -> None:
    """Write the report, open it in fresh browsers, print the times."""
    recording = large.recording()
    diagnosis = diagnose(recording)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.html"
        start = time.perf_counter()
        write(recording, diagnosis, path)
        print(f"written in {time.perf_counter() - start:.1f} s, {path.stat().st_size / 1e6:.2f} MB")
        paints, lives, elements = [], [], 0
        for _ in range(STARTS):
            browser = Browser()
            try:
                browser.size(1100, 900)
                browser.open(path)
                browser.wait_for("performance.getEntriesByName('gradscope-interactive').length", 60)
                paints.append(_milliseconds(browser, "first-contentful-paint"))
                lives.append(_milliseconds(browser, "gradscope-interactive"))
                elements = browser.run("return document.querySelectorAll('*').length")
            finally:
                browser.close()
    print(f"first paint {median(paints):.0f} ms ({min(paints):.0f} to {max(paints):.0f})")
    print(f"interactive {median(lives):.0f} ms ({min(lives):.0f} to {max(lives):.0f}), {elements} elements")


def _milliseconds(browser: Browser, name: str) -> float:
    return float(browser.run("return performance.getEntriesByName(arguments[0])[0].startTime", name))


if __name__ == "__main__":
    main()
