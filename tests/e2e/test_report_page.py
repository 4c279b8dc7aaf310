"""The page in a browser: nothing fetched, nothing wrong, legible wide and narrow, light and dark,
by keyboard and on paper. And ``geokv report`` as a user types it."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import browser, fits, quiet_page
from cli import Geokv
from matplotlib.image import imread
from playwright.sync_api import Browser, Page

__all__ = ["browser"]

UNIT = Path(__file__).resolve().parents[1] / "unit"
sys.path += [str(UNIT / "measure"), str(UNIT / "report")]

KINDS = ("run", "drill", "sweep", "broken", "compared")
WIDTHS = (1600, 1280, 390)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run, a drill, a sweep with every kind of figure, a run with a link off its plan, and a
    page that compares two runs by force."""
    import handwritten_drill
    from handwritten import Run
    from test_report_sweeps import swept

    from geokv.report.compare.comparison import compare_runs
    from geokv.report.compare.html import comparison_html
    from geokv.report.run_folder import write_all

    broken = Run()
    broken.cells[1]["links"][0].update(ok=False, problems=["link a-b: too slow"])
    made = {
        "run": Run(),
        "drill": handwritten_drill.Drill(),
        "sweep": Run(swept()),
        "broken": broken,
    }
    folders = {kind: made[kind].write(tmp_path_factory.mktemp(kind)) for kind in made}
    for folder in folders.values():
        write_all(folder)
    page = comparison_html(compare_runs([folders["run"], folders["sweep"]], force=True))
    folders["compared"] = tmp_path_factory.mktemp("compared")
    (folders["compared"] / "report.html").write_text(page, encoding="utf-8")
    return folders


@contextmanager
def opened(browser: Browser, folder: Path, width: int = 1280, dark: bool = False) -> Iterator[Page]:
    """The page from disk; it complains of nothing, and asks for nothing but itself."""
    address = (folder / "report.html").as_uri()
    asked: list[str] = []
    with quiet_page(browser, width, dark) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        yield page
    assert asked == [address]


@pytest.mark.parametrize("kind", KINDS)
def test_it_needs_nothing_else_and_fits(
    browser: Browser, folders: dict[str, Path], kind: str
) -> None:
    for width in WIDTHS:
        with opened(browser, folders[kind], width) as page:
            assert fits(page)
            verdict = page.locator(".verdict").bounding_box()
            assert verdict is not None
            assert verdict["y"] + verdict["height"] < 900, "the verdict is seen at once"


_CONTRAST = """
() => {
  const light = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number).slice(0, 3).map(v => {
      v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = node => {
    for (; node; node = node.parentElement) {
      const found = getComputedStyle(node).backgroundColor;
      if (!/rgba\\(.*, 0\\)|transparent/.test(found)) return found;
    }
    return 'rgb(255, 255, 255)';
  };
  const poor = [];
  for (const node of document.querySelectorAll('.sheet *, svg text')) {
    const own = [...node.childNodes].some(one => one.nodeType === 3 && one.data.trim());
    if (!own || !node.getClientRects().length || node.closest('.drawing.light')) continue;
    const style = getComputedStyle(node);
    const ink = node.closest('svg') ? style.fill : style.color;
    // Names of faults stand on their bands, which is not the ground of the page.
    if (node.closest('svg')?.querySelector('rect + text') && style.fontWeight >= 600) continue;
    const [a, b] = [light(ink), light(ground(node.closest('svg') || node))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) poor.push([node.tagName, node.textContent.slice(0, 40), ink]);
  }
  return poor;
}
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_words_stand_out_from_their_ground(
    browser: Browser, folders: dict[str, Path], kind: str, dark: bool
) -> None:
    """WCAG 2.1 AA, 4.5 to 1, of the page's words and of those in its figures."""
    with opened(browser, folders[kind], dark=dark) as page:
        ground = page.evaluate("getComputedStyle(document.querySelector('.sheet')).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 384) == dark
        assert page.evaluate(_CONTRAST) == []


def test_a_keyboard_reaches_everything(browser: Browser, folders: dict[str, Path]) -> None:
    with opened(browser, folders["run"]) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#results"
        targets = page.evaluate(
            "document.querySelectorAll('a, summary, [tabindex]').length"
            " - document.querySelectorAll('details:not([open]) :is(a, [tabindex])').length"
        )
        seen = set()
        page.evaluate("document.activeElement.blur(); window.getSelection().removeAllRanges()")
        for _ in range(3 * targets):
            page.keyboard.press("Tab")
            seen.add(
                page.evaluate(
                    "[...document.querySelectorAll('a, summary, [tabindex]')]"
                    ".indexOf(document.activeElement)"
                )
            )
        assert len(seen - {-1}) == targets
        fold = page.locator("details").first
        fold.locator("summary").focus()
        page.keyboard.press("Enter")
        assert fold.evaluate("one => one.open")


def test_what_is_wide_scrolls_inside_itself(browser: Browser, folders: dict[str, Path]) -> None:
    with opened(browser, folders["run"], 390) as page:
        table = page.locator("#results .wide").first
        before = table.evaluate("one => [one.scrollWidth > one.clientWidth, one.scrollLeft]")
        assert before == [True, 0]
        table.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.querySelector('#results .wide').scrollLeft > 0")
        first, whole = table.locator("tbody td").first.bounding_box(), table.bounding_box()
        assert first is not None and whole is not None
        assert first["x"] >= whole["x"], "the km stays where it is"


def test_a_drawing_that_goes_on_shows_it_and_a_map_is_seen_whole(
    browser: Browser, folders: dict[str, Path]
) -> None:
    """The shadow at its right edge is part of what lies behind it, so that must be seen."""
    with opened(browser, folders["drill"], 390) as page:
        drawing = page.locator(".drawing:not(.whole)").first
        assert drawing.evaluate("one => one.scrollWidth > one.clientWidth")
        assert _ends_in_a_shadow(drawing.screenshot())
        drawing.evaluate("one => one.scrollLeft = one.scrollWidth")
        assert not _ends_in_a_shadow(drawing.screenshot())
        assert page.locator(".drawing.whole").evaluate("one => one.scrollWidth <= one.clientWidth")


def _ends_in_a_shadow(shot: bytes) -> bool:
    """Whether the last pixels of most rows are darker than those a shadow's width before."""
    seen = imread(io.BytesIO(shot))[..., :3].sum(axis=2)
    return bool((seen[:, -2] < seen[:, -30] - 0.1).mean() > 0.5)


def test_paper_is_light_whole_and_within_its_margins(
    browser: Browser, folders: dict[str, Path], tmp_path: Path
) -> None:
    for kind, folder in folders.items():
        with opened(browser, folder, dark=True) as page:
            page.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True, print_background=True)
            pages = len(re.findall(rb"/Type ?/Page\b", (tmp_path / "page.pdf").read_bytes()))
            assert 2 <= pages <= 20, kind
            # A4 between its margins, at 96 pixels an inch.
            page.set_viewport_size({"width": 695, "height": 1000})
            page.emulate_media(media="print")
            assert page.evaluate("document.documentElement.scrollWidth") <= 695, kind
            ink = page.evaluate("getComputedStyle(document.querySelector('h1')).color")
            assert sum(map(int, re.findall(r"\d+", ink)[:3])) < 384, "dark ink"
            hidden = page.evaluate(
                "[...document.querySelectorAll('details > :not(summary)')]"
                ".filter(one => !one.checkVisibility({contentVisibilityAuto: true})).length"
            )
            assert hidden == 0, "what is folded on a screen is open on paper"


def test_a_finished_run_is_reported_again(
    geokv: Geokv, folders: dict[str, Path], tmp_path: Path
) -> None:
    for kind in ("run", "drill"):
        folder = tmp_path / kind
        shutil.copytree(folders[kind], folder)
        names = ("report.html", "report.md", "table.md", "table.csv", "table.tex")
        before = {name: (folder / name).read_bytes() for name in names}
        for name in (*names, "requests.parquet", "links.json", "summary.json"):
            (folder / name).unlink()
        done = geokv("report", folder)
        assert done.returncode == 0, done.stderr
        assert set(done.stdout.split()) == {
            str(folder / name) for name in (*names, "requests.parquet")
        }
        assert {name: (folder / name).read_bytes() for name in names} == before


def test_one_format_at_a_time(geokv: Geokv, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(folders["run"], folder)
    (folder / "report.html").unlink()
    done = geokv("report", folder, "-f", "latex", "--format", "csv")
    assert done.stdout.split() == [str(folder / "table.csv"), str(folder / "table.tex")]
    assert not (folder / "report.html").exists()
    refused = geokv("report", folder, "--format", "pdf")
    assert refused.returncode == 2 and "pdf" in refused.stderr


def test_the_page_is_shown_in_the_browser_of_the_user(
    geokv: Geokv, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = tmp_path / "run", tmp_path / "seen"
    shutil.copytree(folders["run"], folder)
    show = tmp_path / "show"
    show.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    show.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(show))
    assert geokv("report", folder, "-f", "html", "--open").returncode == 0
    assert seen.read_text().strip() == (folder / "report.html").as_uri()
    wrong = geokv("report", folder, "-f", "csv", "--open")
    assert wrong.returncode == 2 and "--format html" in wrong.stderr


def test_folders_that_are_no_run_are_refused_with_what_to_do(
    geokv: Geokv, folders: dict[str, Path], tmp_path: Path
) -> None:
    missing = geokv("report", tmp_path / "nowhere")
    assert missing.returncode == 2 and "no such run folder" in missing.stderr
    shutil.copytree(folders["run"], tmp_path / "runs" / "one")
    above = geokv("report", tmp_path / "runs")
    assert above.returncode == 2 and "it has no scenario.yaml" in above.stderr
    assert str(tmp_path / "runs" / "one") in above.stderr
    one = tmp_path / "runs" / "one"
    (one / "records" / "requests.jsonl").write_text('{"request_id": "x"}\n')
    broken = geokv("report", one)
    assert broken.returncode == 4 and "requests.jsonl:1: not a record" in broken.stderr
    assert "another version of geokv" in broken.stderr
    (one / "manifest.json").unlink()
    bare = geokv("report", one)
    assert bare.returncode == 2 and "it has no manifest.json" in bare.stderr


def test_a_verdict_that_is_another_now_is_said(
    geokv: Geokv, folders: dict[str, Path], tmp_path: Path
) -> None:
    """As when records are reduced by a later geokv."""
    folder = tmp_path / "run"
    shutil.copytree(folders["run"], folder)
    summary = folder / "summary.json"
    summary.write_text(summary.read_text().replace('"verdict": "pass"', '"verdict": "fail"', 1))
    done = geokv("report", folder, "-f", "csv")
    assert "verdict: pass now, fail before" in done.stderr
