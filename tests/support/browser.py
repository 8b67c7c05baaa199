"""A real browser for pages: Debian's chromium, driven by playwright; tests that need it are skipped without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@dataclass
class Tab:
    """An open page, the lines of its console, and the addresses of its requests."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def focused(self) -> str:
        """The words of the element that has the focus."""
        found = self.page.evaluate(
            "document.activeElement.getAttribute('aria-label') || document.activeElement.tagName"
        )
        return str(found)


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, or a skip that says what is missing."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup installs it")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with driver.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=[*FLAGS])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, file: Path | str, scheme: str = "light", size: dict[str, int] | None = None) -> Iterator[Tab]:
    """The file or address in a new profile."""
    context = browser.new_context(color_scheme=scheme, viewport=size or WIDE)
    context.set_default_timeout(120_000)  # on a busy machine a page takes its time
    tab = Tab(context.new_page())
    tab.page.on("console", lambda message: tab.console.append(message.text))
    tab.page.on("pageerror", lambda error: tab.console.append(str(error)))
    tab.page.on("request", lambda request: tab.requests.append(request.url))
    tab.page.goto(file.as_uri() if isinstance(file, Path) else file)
    yield tab
    context.close()
