"""Takes ``docs/dashboard.png`` and ``docs/report.png``, the pictures of pages in the docs.

    python docs/take_pictures.py dashboard      # runs `live` at 1x for a minute, and cuts a link
    python docs/take_pictures.py report RUN     # RUN: a finished `geokv run distance_ttft`

Pages are shown by Debian's Chromium, 1280 pixels wide, in light colours.
"""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).resolve().parent
GEOKV = (sys.executable, "-m", "geokv")
WIDTH = 1280
PATIENCE_S = 300.0
ASKED = 60
"""Requests of the live run before a link is cut."""


@contextmanager
def shown() -> Iterator[Page]:
    """A page of the width of the pictures."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        browser.close()


def save(page: Page, name: str, height: int) -> None:
    """The upper ``height`` pixels of a page, in 128 colours, which are all that it has."""
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_timeout(700)
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        few = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(DOCS / name, optimize=True)


def report(run_dir: Path) -> None:
    """What is seen first of a report, and the table below it."""
    with shown() as page:
        page.goto((run_dir.resolve() / "report.html").as_uri())
        save(page, "report.png", 1060)


def dashboard() -> None:
    """A live run while one of its links is cut."""
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as url, shown() as page:
        run_dir = Path(folder) / "live" / "20261130-120000-live"
        live = [*GEOKV, "run", "live", "--pace", "1x", "--quiet", "--out", str(run_dir)]
        with subprocess.Popen(live, stdout=subprocess.DEVNULL) as run:
            try:
                wait_for_requests(run_dir, ASKED)
                fault = ("link-cut", "a-b", "for", "30s")
                subprocess.run([*GEOKV, "live", "inject", str(run_dir), *fault], check=True)
                page.goto(f"{url}")
                page.get_by_role("link", name="live").click()
                page.locator(".link-label.cut").wait_for(timeout=30_000)
                page.wait_for_timeout(8_000)
                save(page, "dashboard.png", 1400)
            finally:
                run.send_signal(signal.SIGINT)


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """A dashboard over a folder; its address."""
    (folder / "live").mkdir()
    command = [*GEOKV, "dashboard", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "it says where it is"
        try:
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)


def wait_for_requests(run_dir: Path, count: int) -> None:
    """Until so many were answered."""
    ends = time.monotonic() + PATIENCE_S
    seen = 0
    while seen < count:
        assert time.monotonic() < ends, f"{seen} requests after {PATIENCE_S:.0f} s"
        time.sleep(0.5)
        path = run_dir / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(True) if path.exists() else []
        steps = [json.loads(line) for line in lines if line.endswith("\n")]
        seen = sum(step["event"] == "request" for step in steps)


if __name__ == "__main__":
    what, *more = sys.argv[1:] or [""]
    if what == "dashboard" and not more:
        dashboard()
    elif what == "report" and len(more) == 1:
        report(Path(more[0]))
    else:
        sys.exit(__doc__)
