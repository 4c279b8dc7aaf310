"""A running lab from the page: watched, broken, healed and stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import browser, fits, quiet_page
from cli import Geokv
from dashboards import Dashboard, start_dashboard, start_from_page
from playwright.sync_api import Browser, Page, expect

__all__ = ["browser"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_BOOT_MS = 150_000


@pytest.fixture
def dashboard(geokv: Geokv, tmp_path: Path, vm: None) -> Iterator[Dashboard]:
    one = start_dashboard(geokv, tmp_path / "runs")
    yield one
    if one.process.poll() is None:
        one.end()


def order(page: Page, text: str) -> None:
    """The newest order stands as ``text``."""
    expect(page.locator(".orders li").first).to_contain_text(text, timeout=60_000)


def test_a_link_is_cut_and_healed_and_a_site_killed_from_the_page(
    dashboard: Dashboard, browser: Browser
) -> None:
    with quiet_page(browser, but="status of 409") as page:
        start_from_page(page, dashboard, "live", pace="1x", set="workload.requests=400")
        sites, links = page.locator(".sites tbody tr"), page.locator(".links tbody tr")
        expect(sites.first).to_contain_text("up", timeout=_BOOT_MS)
        expect(sites.first.locator(".pool").first).to_contain_text("device")
        expect(page.locator(".strip-table tbody tr").first).to_be_visible(timeout=60_000)

        # By keyboard alone, from the drawing.
        label = page.locator(".link-label", has_text="35 km")
        label.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("What", exact=True)).to_be_focused()
        expect(page.get_by_label("Where", exact=True)).to_have_value("link a-b")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Do it")).to_be_focused()
        page.keyboard.press("Enter")
        order(page, "cut it: link a-b — took effect, as was seen")
        expect(page.locator(".link-label.cut")).to_contain_text("cut")
        expect(links.filter(has_text="a-b")).to_contain_text("cut")
        expect(page.locator(".log")).to_contain_text("link-cut-1 (a-b): took effect")

        page.get_by_role("button", name="Heal link-cut-1").click()
        order(page, "heal link-cut-1 — healed, as was seen")
        expect(links.filter(has_text="a-b")).to_contain_text("lit")
        expect(page.locator(".active-fault")).to_have_count(0)

        page.get_by_label("Where", exact=True).select_option("site c")
        page.get_by_label("What", exact=True).select_option(label="crash it (kill -9)")
        page.get_by_role("button", name="Do it").click()
        order(page, "crash it: site c — took effect, as was seen")
        expect(sites.filter(has_text="Site C")).to_contain_text("down")
        page.get_by_role("button", name="Heal site-kill-1").click()
        order(page, "heal site-kill-1 — healed, as was seen")
        expect(sites.filter(has_text="Site C")).to_contain_text("up")

        # What the lab refuses, and what is not even sent.
        line = page.get_by_label("Any fault")
        line.fill("link-cut a-z for 1s")
        line.press("Enter")
        order(page, "refused")
        line.fill("link-cud a-b")
        line.press("Enter")
        order(page, "no fault is called")

        page.set_viewport_size({"width": 390, "height": 844})
        assert fits(page)
        page.set_viewport_size({"width": 1280, "height": 900})

        page.get_by_role("button", name="Stop the stream").click()
        order(page, "stop the stream — the stream has ended")
        expect(page.locator(".run-verdict .badge")).to_have_text("pass", timeout=_BOOT_MS)
        expect(page.locator(".judged li").first).to_be_visible()
        expect(page.get_by_label("Where", exact=True)).to_be_disabled()
    (events,) = dashboard.folder.glob("live/*/events.jsonl")
    steps = [json.loads(line) for line in events.read_text().splitlines()]
    healed = [one["name"] for one in steps if one.get("phase") == "healed"]
    assert healed == ["link-cut-1", "site-kill-1"]
    assert steps[-1]["event"] == "verdict"


def test_a_page_that_lost_its_dashboard_goes_on_where_it_was(
    geokv: Geokv, dashboard: Dashboard, browser: Browser
) -> None:
    """The run is somebody else's; the dashboard is ended and started anew at the same port."""
    out = dashboard.folder / "elsewhere"
    run = geokv.start(
        *("run", "live", "--pace", "1x", "--set", "workload.requests=400", "--out", out)
    )
    port = re.search(r":(\d+)/", dashboard.url)
    assert port is not None
    again = None
    try:
        with quiet_page(browser, but="Failed to load resource") as page:
            page.goto(dashboard.url)
            page.get_by_role("link", name="live", exact=True).click(timeout=_BOOT_MS)
            expect(page.locator(".log")).to_contain_text("links checked before", timeout=_BOOT_MS)
            asked = page.locator(".facts dd").first
            expect(asked).not_to_have_text(re.compile(r"^0 "), timeout=60_000)
            dashboard.end()
            expect(page.locator("#link-state")).to_have_text("reconnecting")
            again = start_dashboard(geokv, dashboard.folder, port[1])
            expect(page.locator("#link-state")).to_have_text("live", timeout=60_000)
            said = page.locator(".log").inner_text()
            assert said.count("links checked before") == 1
            # Its token was of the one before.
            page.get_by_role("button", name="Do it").click()
            order(page, "this needs the token")
    finally:
        geokv("live", "stop", out)
        run.communicate(timeout=150)
        if again is not None:
            again.end()
