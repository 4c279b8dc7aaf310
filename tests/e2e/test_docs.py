"""The documentation site: it builds strictly, opens from disk, and leads nowhere that is not."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import browser, fits, quiet_page
from playwright.sync_api import Browser

import geokv
from geokv.paths import CHECKOUT

__all__ = ["browser"]

_LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif (tag, name) in _LOADED and value:
                self.loaded.append(value)
            elif tag == "a" and name == "href" and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """All but the page for a wrong address, which only a server shows."""
    return {
        path: Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
        if path.name != "404.html"
    }


def test_every_page_is_built(site: Path, pages: dict[Path, Page]) -> None:
    built = {str(path.relative_to(site)) for path in pages}
    written = {
        str(path.relative_to(CHECKOUT / "docs").with_suffix(".html"))
        for path in (CHECKOUT / "docs").rglob("*.md")
    }
    assert written | {"index.html", "contributing.html"} <= built
    # Programs that pages show are pages here.
    assert "repository/scenarios/policy.py.html" in built


def test_every_link_inside_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    lost = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            there = target.is_file() and site in target.parents
            if there and place and target in pages:
                there = place in pages[target].places
            if not there:
                lost.append(f"{path.relative_to(site)}: {link}")
    assert not lost
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    away = [one for page in pages.values() for one in page.loaded if urlsplit(one).netloc]
    assert not away
    for path in site.rglob("*.css"):
        assert "url(http" not in path.read_text(encoding="utf-8"), path


def test_every_public_name_is_in_the_reference(site: Path, pages: dict[Path, Page]) -> None:
    page = pages[site / "reference" / "python.html"]
    assert {f"geokv.{name}" for name in geokv.__all__} <= page.places
    assert {"geokv.Scenario.with_", "geokv.Run.table", "geokv.Lru.evict"} <= page.places
    assert "../scenarios.html#columns-of-tablecsv" in page.links  # a docstring's mention


def test_search_works_from_disk_and_the_page_fits_a_phone(site: Path, browser: Browser) -> None:
    asked: list[str] = []
    with quiet_page(browser) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("s")
        page.keyboard.type("eviction")  # searched as it is typed, and "bit-" is no query
        page.wait_for_selector(".md-search-result__item")
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto((site / "tutorials" / "own-policy.html").as_uri())
        assert fits(page)
    assert all(url.startswith(("file:", "data:", "about:")) for url in asked)
