"""One browser and one report a model for the whole test run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradscope.report.html import write
from tests.html import browser as chromium
from tests.html import pages


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Browser]:
    if why := chromium.missing():
        pytest.skip(f"browser tests need Debian's chromium: {why}")
    opened = chromium.Browser()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("reports")

    def written(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            write(*pages.diagnosed(name), path)
        return path

    return written


@pytest.fixture
def desktop(browser: chromium.Browser) -> chromium.Browser:
    """The browser as a desktop finds it: wide, light, scripts on, nothing stored."""
    browser.scripts(on=True)
    browser.cdp("Page.setBypassCSP", enabled=False)
    browser.size(1100, 900)
    browser.scheme("light")
    browser.run("try { localStorage.clear() } catch {}")
    return browser
