"""``geokv dashboard`` as somebody uses it: in a browser, over real runs."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from browser import browser, fits, quiet_page
from cli import Geokv, Run
from dashboards import Dashboard, start_dashboard, start_from_page
from playwright.sync_api import Browser, expect

from geokv.lab.topology import load_topology
from geokv.paths import CHECKOUT

__all__ = ["browser"]

NAME = "20260101-000000-0123abcd"
LINK_CUT = CHECKOUT / "scenarios" / "drills" / "link-cut.yaml"
NETWORKS = sorted(path.stem for path in (CHECKOUT / "topologies").glob("*.yaml"))


@pytest.fixture
def dashboard(geokv: Geokv, tmp_path: Path) -> Iterator[Dashboard]:
    """One without runs."""
    one = start_dashboard(geokv, tmp_path / "runs")
    yield one
    if one.process.poll() is None:
        one.end()


@pytest.fixture(scope="module")
def shared(
    geokv: Geokv, smoke: Run, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dashboard]:
    """One with a finished run, for tests that only look."""
    one = start_dashboard(geokv, tmp_path_factory.mktemp("dashboard") / "runs")
    copy_in(smoke, one.folder, NAME)
    yield one
    one.end()


def copy_in(run: Run, folder: Path, name: str, scenario: str = "smoke") -> None:
    """A finished run appears, all at once."""
    apart = folder.parent / "apart"
    shutil.copytree(run.folder, apart)
    (folder / scenario).mkdir(exist_ok=True)
    apart.rename(folder / scenario / name)


def test_runs_appear_and_a_finished_one_shows_its_verdict(
    dashboard: Dashboard, browser: Browser, smoke: Run
) -> None:
    with quiet_page(browser) as page:
        page.goto(dashboard.url)
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        expect(page.get_by_text("No run is here yet")).to_be_visible()
        assert "token" not in page.url
        copy_in(smoke, dashboard.folder, NAME)
        row = page.get_by_role("row").filter(has_text="smoke")
        expect(row).to_contain_text("pass")
        copy_in(smoke, dashboard.folder, "20260102-000000-0123abcd")
        expect(page.get_by_role("row").filter(has_text="smoke")).to_have_count(2)
        page.get_by_label("Filter by verdict").select_option("fail")
        expect(page.get_by_text("No run fits.")).to_be_visible()
        page.get_by_label("Filter by verdict").select_option("pass")
        row.first.get_by_role("link").click()
        expect(page.get_by_role("heading", name="A small run of every arm")).to_be_visible()
        expect(page.locator(".run-verdict .badge")).to_have_text("pass")
        judged = page.locator(".judged li")
        expect(judged).to_have_count(len(smoke.summary["expectations"]))
        expect(judged.first).to_be_visible()
        expect(page.locator(".topology svg")).to_contain_text("100 Gb/s")
        table = page.locator(".strip-table")
        for arm in ("recompute", "local hit", "remote hit"):
            expect(table.get_by_role("row").filter(has_text=arm).locator("td").first).to_have_text(
                "4"
            )
        p50 = smoke.summary["cells"][0]["arms"]["local_hit"]["ttft_p50_ms"]
        expect(table).to_contain_text(f"{p50:.2f} ms")
        expect(page.locator("#link-state")).to_have_text("complete")


def test_runs_of_one_scenario_are_told_apart_and_a_damaged_one_says_why(
    dashboard: Dashboard, browser: Browser, smoke: Run
) -> None:
    other = "20260102-000000-0123abcd"
    for name in (NAME, other):
        copy_in(smoke, dashboard.folder, name)
    (dashboard.folder / "smoke" / other / "manifest.json").write_text("{")
    with quiet_page(browser) as page:
        page.goto(dashboard.url)
        rows = page.locator(".runs tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.filter(has_text=f"smoke / {NAME}")).to_contain_text("pass")
        damaged = rows.filter(has_text=f"smoke / {other}")
        expect(damaged).to_contain_text("cannot be read: manifest.json")
        damaged.get_by_role("link").click()
        expect(page.locator(".run-verdict")).to_contain_text("manifest.json")


def test_a_run_without_samples_says_why_columns_are_empty_and_lists_that_go_on_show_it(
    shared: Dashboard, browser: Browser
) -> None:
    with quiet_page(browser) as page:
        page.goto(f"{shared.base}#/run/smoke~{NAME}")
        expect(page.locator(".unsampled")).to_have_count(2)
        expect(page.locator(".unsampled").first).to_contain_text("--live or --pace")
        shadows = re.compile("gradient.*gradient")
        for name in (".judged", ".files"):
            expect(page.locator(name)).to_have_css("background-image", shadows)


_TWO_CELLS = """
async () => {
  const [{ Model }, { Acting }, { gather }] = await Promise.all(
    ['model', 'act', 'now'].map((name) => import(`/static/${name}.js`)));
  const model = new Model();
  const topology = { sites: [], links: [{ name: 'a-b' }] };
  model.about = { state: 'running', live: true, topology };
  const link = (km) => [{ link: 'a-b', km, rate_bps: 1 }];
  model.take({ event: 'run', cells: [{ cell: 0 }, { cell: 1, control: true }] });
  model.take({ event: 'cell', cell: 0, label: 'as asked', t_ns: 0, links: link(50) });
  const acting = new Acting('x');
  acting.model = model;
  model.take({ event: 'command', id: '1', do: 'stop', phase: 'accepted', t_ns: 1 });
  const before = acting.standing({ id: '1' })[0];
  model.take({ event: 'quiesce', t_ns: 2 });
  const after = acting.standing({ id: '1' })[0];
  model.take({ event: 'cell', cell: 1, label: 'control', t_ns: 3, links: link(99) });
  model.about = { state: 'finished', topology };
  return [before, after, gather(model).links.get('a-b').km, model.nameOf(model.foremost)];
}
"""


def test_a_stream_that_was_stopped_has_ended_and_the_network_is_of_the_cell_that_is_named(
    shared: Dashboard, browser: Browser
) -> None:
    with quiet_page(browser) as page:
        page.goto(shared.url)
        assert page.evaluate(_TWO_CELLS) == ["open", "good", 50, "as asked"]


def test_the_report_of_a_run_opens_and_can_do_nothing(shared: Dashboard, browser: Browser) -> None:
    with quiet_page(browser) as page:
        page.goto(f"{shared.base}#/run/smoke~{NAME}")
        with page.context.expect_page() as opened:
            page.get_by_role("link", name="Report", exact=True).click()
        report = opened.value
        expect(report.get_by_role("heading", level=1)).to_contain_text("A small run")
        assert report.evaluate("window.origin") == "null"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_their_window(
    shared: Dashboard, browser: Browser, width: int, dark: bool
) -> None:
    with quiet_page(browser, width, dark) as page:
        page.goto(shared.url)
        expect(page.get_by_role("link", name="smoke")).to_be_visible()
        assert fits(page)
        page.goto(f"{shared.base}#/start")
        expect(page.get_by_text("geokv-tiny").or_(page.get_by_text("smoke")).first).to_be_visible()
        assert fits(page)
        page.goto(f"{shared.base}#/run/smoke~{NAME}")
        expect(page.locator(".judged li").first).to_be_visible()
        assert fits(page)
        # What reads itself off a canvas is drawn in the colours of its surroundings.
        ink = page.evaluate("getComputedStyle(document.body).color")
        assert (ink == "rgb(228, 232, 239)") == dark


def test_the_keyboard_reaches_everything(shared: Dashboard, browser: Browser) -> None:
    with quiet_page(browser) as page:
        page.goto(shared.url)
        link = page.get_by_role("link", name="smoke")
        expect(link).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()
        for _ in range(3):
            page.keyboard.press("Tab")
        expect(link).to_be_focused()
        expect(link).to_have_css("outline-style", "solid")
        page.keyboard.press("Enter")
        expect(page.locator(".judged li").first).to_be_visible()
        page.get_by_role("button", name="log scale").focus()
        page.keyboard.press("Space")
        expect(page.get_by_role("button", name="log scale")).to_have_attribute(
            "aria-pressed", "true"
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_events_of_cells_with_clocks_of_their_own_stand_apart(
    dashboard: Dashboard, browser: Browser, geokv: Geokv, vm: None
) -> None:
    """The two cells of a drill, each in a VM of its own, at once."""
    run = geokv.run_scenario(LINK_CUT, "--set", "vm.jobs=2", timeout=400)
    copy_in(run, dashboard.folder, NAME, "link-cut")
    text = (run.folder / "events.jsonl").read_text(encoding="utf-8")
    steps = [json.loads(line) for line in text.splitlines()]
    parts = [step["part"] for step in steps if "part" in step]
    assert sum(one != other for one, other in pairwise(parts)) > 1, "they come mixed"
    with quiet_page(browser) as page:
        page.goto(f"{dashboard.base}#/run/link-cut~{NAME}")
        log = page.get_by_role("log")
        heads = log.get_by_role("heading")
        expect(heads).to_have_text(["as written", "control: fails as it must", "the run"])
        for name in ("as written", "control: fails as it must"):
            lines = log.locator("section").filter(has=page.get_by_role("heading", name=name))
            expect(lines.locator("li").filter(has_text="cut (a-b): took effect")).to_have_count(1)
            times = [float(one.split()[0]) for one in lines.locator("time").all_text_contents()]
            assert times == sorted(times) and len(times) > 6
        whole = log.locator("section").filter(has=page.get_by_role("heading", name="the run"))
        expect(whole.locator("li")).to_have_text(["·writing the report", "✓verdict: pass"])
        choice = page.get_by_label("Cell of the events shown")
        choice.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        expect(log.locator("h3:visible")).to_have_text(["control: fails as it must"])
        expect(log.locator("li:visible").filter(has_text="requests failed")).to_have_count(1)
        page.keyboard.press("Tab")
        expect(log).to_be_focused()
        page.set_viewport_size({"width": 390, "height": 844})
        expect(choice).to_be_visible()
        assert fits(page)
        cells = page.get_by_label("Cell shown", exact=True).locator("option")
        expect(cells).to_have_text(
            ["as judged", "all cells", "as written", "control: fails as it must"]
        )


def test_a_tab_without_the_token_may_only_look(shared: Dashboard, browser: Browser) -> None:
    with quiet_page(browser) as page:
        page.goto(f"{shared.base}#/start")
        expect(page.get_by_text("may only look")).to_be_visible()
        page.get_by_role("radio").first.wait_for()
        page.get_by_text("smoke", exact=True).click()
        expect(page.get_by_role("button", name="Start")).to_be_disabled()


def test_a_wrong_value_is_refused_before_anything_is_started(
    shared: Dashboard, browser: Browser
) -> None:
    with quiet_page(browser, but="status of 409") as page:
        page.goto(shared.url)
        page.get_by_role("link", name="Start a run").click()
        page.get_by_text("smoke", exact=True).click()
        page.get_by_label("Changed values").fill("links.a-b.km=-3")
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator(".said")).to_contain_text("must be ≥ 0")
        page.get_by_label("Changed values").fill("links.a-b.km=30")
        page.get_by_role("button", name="Check").click()
        expect(page.locator(".said")).to_contain_text("In order: 2 sites, 1 cells, 6 requests")
    assert [path.name for path in shared.folder.glob("*/*")] == [NAME]


@pytest.mark.slow
def test_a_run_is_started_from_the_page_and_watched_to_its_verdict(
    dashboard: Dashboard, browser: Browser, vm: None
) -> None:
    with quiet_page(browser) as page:
        small = "workload.requests=1\nworkload.warmup=0\nworkload.prefix_tokens=512\nvm.jobs=1"
        start_from_page(page, dashboard, "smoke", set=small)
        expect(page.locator(".run-verdict .badge")).to_have_text("running")
        expect(page.locator(".strip-table")).to_contain_text("remote hit", timeout=90_000)
        expect(page.locator(".run-verdict .badge")).to_have_text("pass", timeout=120_000)
        expect(page.locator(".judged li").first).to_be_visible()
        expect(page.get_by_role("link", name="Report", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="End this run")).to_be_hidden()


@pytest.mark.slow
def test_runs_that_were_started_from_the_page_end_with_the_dashboard(
    dashboard: Dashboard, browser: Browser, vm: None
) -> None:
    with quiet_page(browser) as page:
        start_from_page(page, dashboard, "distance_ttft")
        (folder,) = dashboard.folder.glob("distance_ttft/*")
        children = subprocess.run(
            ["pgrep", "-P", str(dashboard.process.pid)], capture_output=True, text=True, timeout=10
        ).stdout.split()
        assert len(children) == 1
    said = dashboard.end()
    assert "and with it 1 run\n" in said
    assert not Path(f"/proc/{children[0]}").exists()
    assert not (folder / "summary.json").exists()


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (CHECKOUT / "topologies").glob("*.yaml"))
)
def test_every_shipped_network_is_drawn_by_its_lengths(
    shared: Dashboard, browser: Browser, name: str
) -> None:
    """Of every two links where one is at least twice as long, the drawing says so; sites keep
    apart; and the same network is drawn the same way again."""
    topology = load_topology(name)
    links = [
        {"name": link, "a": link.partition("-")[0], "b": link.partition("-")[2], "km": one.km}
        for link, one in topology.links.items()
    ]
    plain = {"sites": [{"name": site} for site in topology.sites], "links": links}
    with quiet_page(browser) as page:
        page.goto(shared.url)
        draw = "async (t) => (await import('/static/topology.js')).layout(t)"
        places = page.evaluate(draw, plain)
        assert page.evaluate(draw, plain) == places
    at = {one["name"]: (one["x"], one["y"]) for one in places}
    assert at.keys() == topology.sites.keys()
    assert min(math.dist(at[a], at[b]) for a, b in combinations(at, 2)) > 0.05
    drawn = {link["name"]: math.dist(at[link["a"]], at[link["b"]]) for link in links}
    longest = max(link["km"] for link in links)
    for one, other in combinations(links, 2):
        if one["km"] >= 2 * other["km"] and one["km"] - other["km"] > 0.3 * longest:
            assert drawn[one["name"]] > drawn[other["name"]], (one, other)
