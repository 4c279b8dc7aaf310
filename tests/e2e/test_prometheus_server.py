"""A real Prometheus reads an endpoint; every panel of the dashboard then shows what happened."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from played_run import REQUESTS, play
from prometheus_server import (
    Prometheus,
    Series,
    asked_by,
    prometheus_at,
)

from geokv.paths import CHECKOUT
from geokv.report.prometheus import endpoint as endpoint_module
from geokv.report.prometheus.endpoint import Endpoint
from geokv.scenario import load_scenario

SCRAPE_S = 0.5
DASHBOARD = Path(endpoint_module.__file__).parent / "grafana.json"
FAULTS = [
    {"fault": "link-cut", "link": "a-b", "at": "3s", "for": "3s", "name": "cut"},
    {"fault": "site-kill", "site": "c", "at": "8s", "restart": "3s", "name": "crash"},
]


def small_lab(folder: Path) -> Path:
    """Three sites and a quarter of a minute in which a link is cut and a site dies."""
    scenario = yaml.safe_load((CHECKOUT / "scenarios" / "live.yaml").read_text())
    scenario["name"] = "small_lab"
    scenario["workload"].update(prefixes=6, requests=REQUESTS, rate=8)
    scenario["timeline"] = FAULTS
    path = folder / "small_lab.yaml"
    path.write_text(yaml.safe_dump(scenario))
    return path


class Shown:
    """What panels show of one run.

    Attributes:
        events: what the run itself wrote of it.
    """

    def __init__(self, prometheus: Prometheus, begin_s: float, events: list[dict[str, Any]]):
        # What was read a moment ago is in the store a moment later.
        time.sleep(1.0)
        end_s = time.time()
        self.events = events
        self._of: dict[str, list[list[Series]]] = defaultdict(list)
        board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        assert prometheus.values_of("job", "geokv_run_info") == ["geokv"]
        for asked in asked_by(board, prometheus, end_s - begin_s):
            found = (
                prometheus.at(asked.query, end_s)
                if asked.instant
                else prometheus.range(asked.query, begin_s, end_s)
            )
            assert any(one.numbers for one in found), f"{asked.title}: nothing of {asked.query}"
            self._of[asked.title].append(found)
        self.titles = set(self._of)

    def requests(self) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == "request" and not one["warmup"]]

    def queries(self, title: str) -> list[list[Series]]:
        """Of each query of a panel, its series."""
        return self._of[title]

    def series(self, title: str, *by: str) -> dict[tuple[str, ...], list[float]]:
        """Of a panel with one query: values of these labels → numbers."""
        (found,) = self._of[title]
        keyed = {tuple(one.labels[name] for name in by): one.numbers for one in found}
        assert len(keyed) == len(found), f"{title}: lines that nothing tells apart"
        return keyed

    def number(self, title: str) -> float:
        """Of a panel that shows one: the last."""
        return self.series(title)[()][-1]


def summed(lines: dict[tuple[str, ...], list[float]]) -> float:
    """What rates add up to."""
    return sum(sum(numbers) for numbers in lines.values()) * SCRAPE_S


@pytest.mark.timeout(200)
def test_every_panel_shows_what_an_endpoint_was_told(tmp_path: Path) -> None:
    begin_s = time.time()
    with (
        Endpoint(load_scenario(str(small_lab(tmp_path))), 0) as endpoint,
        prometheus_at(endpoint.url, tmp_path / "prometheus", SCRAPE_S) as prometheus,
    ):
        told = play(endpoint.take)
        assert 0 < endpoint.patience_s() < 10, "it has been read, and will be once more"
        time.sleep(2 * SCRAPE_S)
        look_at(Shown(prometheus, begin_s, told))


def look_at(shown: Shown) -> None:
    """Every panel has a check, and passes it."""
    checks: dict[str, Callable[[], None]] = {
        "Faults": lambda: _faults(shown.series("Faults", "fault", "kind", "target"), only=True),
        "Verdict": lambda: _equal(shown.series("Verdict", "verdict"), {("pass",): [1.0]}),
        "Requests that have ended": lambda: _equal(
            shown.number("Requests that have ended"), REQUESTS
        ),
        "of": lambda: _equal(shown.number("of"), REQUESTS),
        "Cells finished": lambda: _equal(shown.number("Cells finished"), 1),
        "Left": lambda: _left(shown),
        "Run's clock": lambda: _clock(shown),
        "Time to first token": lambda: _ttft(shown),
        "Requests": lambda: _requests(shown),
        "Prompt tokens by where they came from": lambda: _tokens(shown),
        "Places taken in the pools": lambda: _pools(shown),
        "Load of the links": lambda: _load(shown),
        "Bytes on the links": lambda: _link_bytes(shown),
        "Faults in effect": lambda: _faults(
            shown.series("Faults in effect", "fault", "kind", "target"), only=False
        ),
        "Links": lambda: _links(shown),
        "Sites": lambda: _sites(shown),
        "Requests under way": lambda: _under_way(shown),
        "Payload fetched from other sites": lambda: _payload(shown),
    }
    assert set(checks) == shown.titles, "a panel that nobody looks at here"
    for check in checks.values():
        check()


def _equal(found: object, wanted: object) -> None:
    assert found == wanted


def _left(shown: Shown) -> None:
    numbers = shown.series("Left")[()]
    assert numbers[-1] == 0 < max(numbers) < 300


def _clock(shown: Shown) -> None:
    last_ns = max(one["t_ns"] for one in shown.events if "t_ns" in one)
    assert shown.number("Run's clock") == pytest.approx(last_ns / 1e9, abs=1e-6)


def _ttft(shown: Shown) -> None:
    seen_s = [one["ttft_ns"] / 1e9 for one in shown.requests() if one["ttft_ns"] is not None]
    for found in shown.queries("Time to first token"):
        (line,) = found
        assert line.labels == {"arm": "stream"}
        # Within a bucket the estimate is off by its width, and these are at most 2.5 times as
        # wide as they begin at.
        assert min(seen_s) / 2.5 <= min(line.numbers) <= max(line.numbers) <= 2.5 * max(seen_s)
    (median,), (tail,) = shown.queries("Time to first token")
    first_s, hundredth_s = (
        next(at_s for at_s, number in line.points if not math.isnan(number))
        for line in (median, tail)
    )
    assert hundredth_s - first_s > 3, "20 answers a second: the hundredth is five seconds later"


def _requests(shown: Shown) -> None:
    lines = shown.series("Requests", "arm", "site", "status")
    seen = Counter(("stream", one["site"], one["status"]) for one in shown.requests())
    assert set(lines) == set(seen), "and none that never was"
    for who, count in seen.items():
        # Between two reads a rate is a guess: a few requests may look like one more or less.
        assert sum(lines[who]) * SCRAPE_S == pytest.approx(count, rel=0.1, abs=1.5), who


def _tokens(shown: Shown) -> None:
    lines = shown.series("Prompt tokens by where they came from", "tier")
    assert {tier for (tier,) in lines} == {"device", "dram", "disk", "remote", "computed"}
    answered = [one for one in shown.requests() if one["status"] == "ok"]
    asked = sum(one["prompt_tokens"] for one in answered)
    assert summed(lines) == pytest.approx(asked, rel=0.1)
    assert max(lines["remote",]) > 0 < max(lines["computed",])


def _pools(shown: Shown) -> None:
    lines = shown.series("Places taken in the pools", "site", "pool", "state")
    assert {site for site, _, _ in lines} == set("abc")
    assert {pool for _, pool, _ in lines} == {"device", "dram", "disk"}
    assert "free" not in {state for _, _, state in lines}
    assert max(lines["a", "dram", "cached"]) > 0


def _load(shown: Shown) -> None:
    lines = shown.series("Load of the links", "link", "direction")
    assert len(lines) == 6
    assert all(0 <= number <= 1 for numbers in lines.values() for number in numbers)


def _link_bytes(shown: Shown) -> None:
    lines = shown.series("Bytes on the links", "link", "direction")
    assert len(lines) == 6
    last = [one for one in shown.events if one["event"] == "sample"][-1]
    sent = sum(sum(link["bytes"]) for link in last["links"].values())
    assert summed(lines) == pytest.approx(sent, rel=0.1)


def _faults(lines: dict[tuple[str, ...], list[float]], only: bool) -> None:
    assert set(lines) == {("cut", "link-cut", "a-b"), ("crash", "site-kill", "c")}
    for numbers in lines.values():
        assert max(numbers) == 1 and min(numbers) == (1 if only else 0)


def _links(shown: Shown) -> None:
    dark, degraded = shown.queries("Links")
    ever = {one.labels["link"]: max(one.numbers) for one in dark}
    assert ever == {"a-b": 1, "b-c": 0, "a-c": 0}
    assert {one.numbers[-1] for one in dark} == {0}, "light is back"
    assert {max(one.numbers) for one in degraded} == {0}


def _sites(shown: Shown) -> None:
    for found in shown.queries("Sites"):
        worst = {one.labels["site"]: min(one.numbers) for one in found}
        assert worst == {"a": 1, "b": 1, "c": 0}
        assert {one.numbers[-1] for one in found} == {1}, "it is back"


def _under_way(shown: Shown) -> None:
    most = max(one["in_flight"] for one in shown.events if one["event"] == "sample")
    numbers = shown.series("Requests under way")[()]
    assert 0 <= min(numbers) <= max(numbers) <= most


def _payload(shown: Shown) -> None:
    lines = shown.series("Payload fetched from other sites", "site")
    fetched = sum(one["wire_bytes"] for one in shown.requests())
    assert summed(lines) == pytest.approx(fetched, rel=0.1) and fetched > 0
