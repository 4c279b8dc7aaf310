"""Debian's Chromium through Playwright, and a page that must say nothing on its console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_MS = 30_000
"""A busy machine takes seconds for what an idle one does at once."""
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser; tests that need one are skipped where it is not installed.

    Of a module and no longer: while it is there, its event loop runs in this thread.
    """
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed (apt install chromium)")
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield one
        one.close()


@contextmanager
def quiet_page(
    browser: Browser, width: int = 1280, dark: bool = False, but: str | None = None
) -> Iterator[Page]:
    """A page of its own context; whatever it complains of fails the test at the end.

    Args:
        but: what it may say; the browser itself notes every answer of 400 and more.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    said: list[str] = []
    page.on("console", lambda one: said.append(f"{one.type}: {one.text}"))
    page.on("pageerror", lambda one: said.append(f"error: {one}"))
    try:
        yield page
        assert [one for one in said if but is None or but not in one] == []
    finally:
        context.close()


def fits(page: Page) -> bool:
    """Whether nothing makes the page wider than its window."""
    width = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    return bool(width[0] <= width[1])
