"""Takes ``docs/dashboard.png`` and ``docs/report.png``, the pictures of pages in the docs.

    python docs/take_pictures.py dashboard RUN    # of a finished `geokv drill partition-and-heal`
    python docs/take_pictures.py report RUN       # of a finished `geokv run distance_ttft`

Pages are shown by Debian's Chromium, 1280 pixels wide, in light colours.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from geokv.scenario import load_scenario

DOCS = Path(__file__).resolve().parent
GEOKV = (sys.executable, "-m", "geokv")
WIDTH = 1280


@contextmanager
def shown() -> Iterator[Page]:
    """A page of the width of the pictures."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        browser.close()


def save(page: Page, name: str, height: int | None = None) -> None:
    """The upper ``height`` pixels of a page, or all, in 255 colours, which keeps the file small."""
    whole = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": WIDTH, "height": height or whole})
    page.wait_for_timeout(700)
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        few = picture.convert("RGB").quantize(255, dither=Image.Dither.NONE)
        few.save(DOCS / name, optimize=True)


def report(run_dir: Path) -> None:
    """What is seen first of a report, and the table below it."""
    with shown() as page:
        page.goto((run_dir.resolve() / "report.html").as_uri())
        save(page, "report.png", 1060)


def dashboard(run_dir: Path) -> None:
    """A run as the dashboard shows it, without the files of its folder."""
    with tempfile.TemporaryDirectory() as folder:
        name = load_scenario(str(run_dir / "scenario.yaml")).name
        shutil.copytree(run_dir, Path(folder) / name / run_dir.name)
        with started(Path(folder)) as url, shown() as page:
            page.goto(url)
            page.get_by_role("link", name=name).click()
            page.locator(".judged li").first.wait_for(timeout=60_000)
            page.wait_for_timeout(3_000)
            save(page, "dashboard.png")


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """A dashboard over a folder; its address."""
    command = [*GEOKV, "dashboard", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "it says where it is"
        try:
            yield found[0]
        finally:
            process.terminate()


if __name__ == "__main__":
    what, run = sys.argv[1:] if len(sys.argv) == 3 else ("", "")
    takers = {"dashboard": dashboard, "report": report}
    if what not in takers:
        sys.exit(__doc__)
    takers[what](Path(run))
