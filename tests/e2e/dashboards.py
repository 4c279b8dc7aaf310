"""Starting ``geokv dashboard`` and what its page is asked for again and again."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from cli import Geokv
from playwright.sync_api import Page

START_S = 60.0


@dataclass
class Dashboard:
    """A running ``geokv dashboard``.

    Attributes:
        url: with the token behind its ``#``.
        folder: of its runs.
    """

    process: subprocess.Popen[str]
    url: str
    folder: Path

    @property
    def base(self) -> str:
        return self.url.partition("#")[0]

    def end(self) -> str:
        """Ctrl-C; what it says then."""
        with self.process:
            self.process.send_signal(signal.SIGINT)
            _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return errors


def start_dashboard(geokv: Geokv, folder: Path, port: str = "0", *more: str) -> Dashboard:
    """Start it over a folder and wait for its address."""
    folder.mkdir(exist_ok=True)
    process = geokv.start("dashboard", folder, "--port", port, *more)
    assert process.stdout is not None
    said, ends = "", time.monotonic() + START_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while "Ctrl-C" not in said:
            assert selector.select(ends - time.monotonic()), f"said only {said!r}"
            piece = os.read(process.stdout.fileno(), 65536).decode()
            assert piece, "it ended"
            said += piece
    found = re.search(r"http://127\.0\.0\.1:\d+/#token=[\w-]+", said)
    assert found, said
    return Dashboard(process, found[0], folder)


def start_from_page(page: Page, dashboard: Dashboard, name: str, **more: str) -> None:
    """Choose a scenario, start it, and be on its page."""
    page.goto(dashboard.url)
    page.get_by_role("link", name="Start a run").click()
    page.get_by_text(name, exact=True).click()
    if "set" in more:
        page.get_by_label("Changed values").fill(more["set"])
    if "pace" in more:
        page.get_by_role("combobox", name="Pace").select_option(more["pace"])
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(re.compile(r"#/run/"), timeout=90_000)
