"""A page made of attacks stays a page: nothing runs, nothing loads, everything is shown as text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradscope.report.html import html
from gradscope.report.html.notebook import repr_html
from tests.html import hostile
from tests.html.browser import Browser
from tests.html.test_browser import open_ready, show_all

Page = Callable[[str], Path]


@pytest.mark.browser
def test_no_attack_gets_through(desktop: Browser, page: Page) -> None:
    path = page("hostile")
    open_ready(desktop, path)
    show_all(desktop)
    desktop.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert desktop.run("return window.owned") is None
    assert desktop.log("browser") == []
    assert desktop.requests() == [path.as_uri()]
    assert desktop.run("return document.querySelectorAll('img, iframe, object, embed, form, link, base').length") == 0
    handlers = (
        "return [...document.querySelectorAll('*')]"
        ".filter(e => [...e.attributes].some(a => /^on/i.test(a.name))).length"
    )
    assert desktop.run(handlers) == 0
    links = desktop.run(
        "return [...document.querySelectorAll('a')]"
        ".map(a => a.getAttribute('href') ?? a.getAttribute('xlink:href') ?? '')"
    )
    assert [link for link in links if link and not link.startswith("#")] == []
    text = desktop.run("return document.body.innerText")
    for attack in hostile.ATTACKS[:4]:
        assert attack in text


@pytest.mark.browser
def test_plotly_shows_names_as_text(desktop: Browser, page: Page) -> None:
    open_ready(desktop, page("hostile"))
    show_all(desktop)
    ticks = desktop.run("return [...document.querySelectorAll('.live .xtick text')].map(e => e.textContent).join(' ')")
    assert "</script>" in ticks
    assert desktop.run("return document.querySelectorAll('.live a, .live b').length") == 0
    assert (
        desktop.run("return document.querySelectorAll('.modebar-btn[data-title*=\"loud\"], .modebar-btn--logo').length")
        == 0
    )


@pytest.mark.browser
def test_the_policy_stops_what_would_get_in(desktop: Browser, page: Page, tmp_path: Path) -> None:
    """Were a name ever printed unescaped, the page's own policy would still not run it."""
    broken = tmp_path / "broken.html"
    text = page("hostile").read_text()
    broken.write_text(
        text.replace(
            '<main id="main"', '<script>window.owned=1</script><img src=x onerror=window.owned=2><main id="main"', 1
        )
    )
    open_ready(desktop, broken)
    assert desktop.run("return window.owned") is None
    assert desktop.log("browser") != []


def test_nothing_is_left_unescaped() -> None:
    text = html(hostile.recording(), hostile.diagnosis())
    for attack in (*hostile.ATTACKS[:2], hostile.ATTACKS[4], "<a href='javascript"):
        assert attack not in text
    assert "javascript:window" not in "".join(part.split('"')[0] for part in text.split('href="')[1:])
    assert text.count("<script") == 5
    assert "\x00" not in text
    notebook = repr_html(hostile.recording())
    assert "<script" not in notebook
    assert "<img" not in notebook


def test_no_paths_of_this_machine(tmp_path: Path) -> None:
    recording, diagnosis = hostile.recording(), hostile.diagnosis()
    tables = {name: dict(table) for name, table in recording.tables.items()}
    home, windows = "/home/ann/secret/model.py", r"C:\Users\ann\secret\model.py"
    tables["confessions"] = {"what": [home, windows], "why": [f'File "{home}", line 3', f"in {windows}: no"]}
    from dataclasses import replace

    from gradscope.record import Recording
    from gradscope.report.html import read_back, write

    provenance = replace(recording.provenance, target=f"{home}:build", arguments={"path": home})
    finding = replace(diagnosis.findings[0], file=home, message=f"see {home}", evidence={"file": windows})
    write(Recording(provenance, tables), replace(diagnosis, findings=(finding,)), tmp_path / "page.html", title=home)
    text = (tmp_path / "page.html").read_text()
    carried = json.dumps(read_back(tmp_path / "page.html").to_object())
    assert "ann" not in text.replace("cannot", "").replace("channel", "").split("gradscope-recording")[0].replace(
        "mannered", ""
    )
    assert "secret" not in text.split("gradscope-recording")[0]
    assert "secret" not in carried
    assert "…/model.py" in text


def test_same_recording_same_bytes(tmp_path: Path) -> None:
    script = (
        "import hashlib\nfrom tests.html import hostile\nfrom gradscope.report.html import html\n"
        "print(hashlib.sha256(html(hostile.recording(), hostile.diagnosis()).encode()).hexdigest())"
    )
    sums = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path.cwd()), "PATH": ""},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(sums) == 1
