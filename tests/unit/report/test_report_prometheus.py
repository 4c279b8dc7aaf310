"""A run's endpoint: what it counts, who may read what, how long it stays, what a page asks."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import math
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from geokv.errors import ConfigError, RunError
from geokv.report.prometheus import endpoint as endpoint_module
from geokv.report.prometheus import figures_at
from geokv.report.prometheus.endpoint import Endpoint
from geokv.report.prometheus.figures import RunFigures
from geokv.scenario import load_scenario

DASHBOARD = Path(endpoint_module.__file__).parent / "grafana.json"
FOLDER = {"event": "folder", "path": "r", "parts": 1, "kernel": "k"}
LINK = {"link": "a-b", "a": "a", "b": "b", "km": 50, "kind": "apn", "rate_bps": 8_000, "rtt_ns": 5}
CELL = {"event": "cell", "part": 0, "cell": 0, "label": "a-b 0 km", "t_ns": 0, "links": [LINK]}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def request(arm: str = "remote-hit", **other: Any) -> dict[str, Any]:
    """1,056 tokens, 4 chunks of 256 of them from elsewhere."""
    remote = 4 if arm == "remote-hit" else 0
    return {
        "event": "request", "part": 0, "cell": 0, "arm": arm, "warmup": False, "site": "b",
        "tenant": "t", "status": "ok", "error": None, "t_ns": 2 * 10**9, "sent_ns": 10**9,
        "ttft_ns": 25_000_000, "ttft_ms": 25.0, "source": "remote" if remote else "none",
        "prompt_tokens": 1056, "cached_tokens": 256 * remote, "chunks_remote": remote,
        "chunks_local": 0, "chunks_disk": 0, "wire_bytes": 1000 * remote,
    } | other  # fmt: skip


def sample(sent: tuple[int, int] = (500, 20), state: str = "ok", up: bool = True) -> dict[str, Any]:
    pools = {"device": {"total": 10, "free": 4, "cached": 5, "pinned": 1, "reserved": 0}}
    site = {"up": True, "answers": True, "running": 1, "waiting": 1, "under_way": 2, "pools": pools}
    return {
        "event": "sample", "part": 0, "t_ns": 3 * 10**9, "in_flight": 2,
        "sites": {"a": {"up": False, "answers": False} if not up else site, "b": site},
        "links": {"a-b": {"state": state, "km": 50.0, "rtt_ns": 500_000, "rate_bps": 8 * 10**9,
                          "bytes": list(sent), "load": [0.25, 0.0]}},
    }  # fmt: skip


def fault(phase: str) -> dict[str, Any]:
    return {"event": "fault", "part": 0, "t_ns": 4 * 10**9, "cell": 0, "name": "cut",
            "kind": "link-cut", "target": "a-b", "phase": phase, "said": ""}  # fmt: skip


EVENTS = [FOLDER, CELL, request(), request("recompute"), sample(), fault("asked"),
          fault("took-effect")]  # fmt: skip


def parsed(text: str) -> Samples:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def told(*events: dict[str, Any], scenario: str = "smoke") -> Samples:
    registry = CollectorRegistry()
    figures = RunFigures(load_scenario(scenario), registry)
    for event in events:
        figures.take(event)
    return parsed(generate_latest(registry).decode())


def value(samples: Samples, metric: str, **labels: str) -> float:
    return samples[f"geokv_run_{metric}", frozenset(labels.items())]


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def test_requests_tokens_and_times_are_counted_once() -> None:
    aside = [request(warmup=True), request("prepare", warmup=True)]
    refused = request(status="refused", ttft_ns=None, error="429")
    found = told(FOLDER, CELL, *aside, request(), request(), request("recompute"), refused)
    assert value(found, "requests_total", arm="remote-hit", site="b", status="ok") == 2
    assert value(found, "requests_total", arm="remote-hit", site="b", status="refused") == 1
    tiers = {
        tier: value(found, "prompt_tokens_total", site="b", tier=tier)
        for tier in ("device", "dram", "disk", "remote", "computed")
    }
    assert tiers == {"device": 0, "dram": 0, "disk": 0, "remote": 2048, "computed": 64 + 1056}
    assert value(found, "wire_bytes_total", site="b") == 8000
    name = "time_to_first_token_seconds"
    assert value(found, f"{name}_count", arm="remote-hit", site="b") == 2
    assert value(found, f"{name}_sum", arm="remote-hit", site="b") == pytest.approx(0.05)
    assert value(found, f"{name}_bucket", arm="remote-hit", site="b", le="0.02") == 0
    assert value(found, f"{name}_bucket", arm="remote-hit", site="b", le="0.03") == 2
    assert (value(found, "requests_planned"), value(found, "cells_planned")) == (12, 2)
    assert value(found, "clock_seconds", part="0") == 2


def test_counters_are_there_before_they_grow() -> None:
    """Prometheus draws what a series gains from its second value on."""
    measured, drill = told(FOLDER), told(FOLDER, scenario="live")
    series = {
        name: [dict(labels) for found, labels in measured if found == f"geokv_run_{name}"]
        for name in ("requests_total", "time_to_first_token_seconds_count", "link_bytes_total")
    }
    arms = ("recompute", "local-hit", "remote-hit")
    assert len(series["requests_total"]) == len(arms) * len(("ok", "error"))
    assert {one["arm"] for one in series["time_to_first_token_seconds_count"]} == set(arms)
    assert {one["direction"] for one in series["link_bytes_total"]} == {"a to b", "b to a"}
    for found in (measured, drill):
        assert {number for (name, _), number in found.items() if name.endswith("_total")} == {0}
    for site in "abc":
        assert value(drill, "requests_total", arm="stream", site=site, status="unanswered") == 0
        assert value(drill, "prompt_tokens_total", site=site, tier="remote") == 0


def test_chunks_are_as_long_as_those_of_their_cell() -> None:
    own = request(cell=1, cached_tokens=16, chunks_remote=4, prompt_tokens=100)
    found = told(FOLDER, own, scenario="granularity")
    chunk_tokens = load_scenario("granularity").cells()[1].scenario.deployment.chunk_tokens
    assert value(found, "prompt_tokens_total", site="b", tier="remote") == 4 * chunk_tokens != 1024


def test_what_is_not_known_is_not_a_number() -> None:
    assert math.isnan(value(told(FOLDER), "left_seconds"))
    assert not math.isnan(value(told(FOLDER, CELL, request(), request()), "left_seconds"))


def test_samples_fill_pools_and_links() -> None:
    found = told(FOLDER, CELL, sample(up=False))
    assert value(found, "in_flight_requests") == 2
    assert (value(found, "site_up", site="a"), value(found, "site_answers", site="b")) == (0, 1)
    assert value(found, "pool_places", site="b", pool="device", state="cached") == 5
    assert not [labels for name, labels in found if ("state", "total") in labels]
    assert value(found, "link_rtt_seconds", link="a-b") == 0.0005
    assert value(found, "link_capacity_bytes_per_second", link="a-b") == 10**9
    assert value(found, "link_load_ratio", link="a-b", direction="a to b") == 0.25


def test_bytes_of_a_link_only_grow_though_a_new_network_counts_anew() -> None:
    found = told(FOLDER, sample((500, 20)), sample((700, 20)), CELL, sample((30, 50)))
    assert value(found, "link_bytes_total", link="a-b", direction="a to b") == 730
    assert value(found, "link_bytes_total", link="a-b", direction="b to a") == 50


def test_a_link_is_in_one_state() -> None:
    found = told(FOLDER, sample(), sample(state="dark"))
    states = {
        state: value(found, "link_state", link="a-b", state=state)
        for state in ("ok", "degraded", "dark")
    }
    assert states == {"ok": 0, "degraded": 0, "dark": 1}


@pytest.mark.parametrize(
    ("phases", "active"),
    [(["asked"], 0), (["asked", "did-not-fire"], 0),
     (["asked", "took-effect"], 1), (["asked", "took-effect", "heal-asked"], 1),
     (["asked", "took-effect", "heal-asked", "healed"], 0),
     (["asked", "took-effect", "heal-asked", "did-not-heal"], 1)],
)  # fmt: skip
def test_a_fault_is_in_effect_from_when_it_is_seen(phases: list[str], active: int) -> None:
    found = told(FOLDER, *map(fault, phases))
    who = {"fault": "cut", "kind": "link-cut", "target": "a-b"}
    assert value(found, "fault_active", **who) == active
    assert all(value(found, "fault_phases_total", **who, phase=one) == 1 for one in phases)


def test_there_is_one_verdict() -> None:
    def verdicts(*events: dict[str, Any]) -> set[str]:
        return {
            dict(labels)["verdict"]
            for (name, labels), number in told(FOLDER, *events).items()
            if name == "geokv_run_verdict" and number
        }

    assert verdicts() == {"running"}
    assert verdicts({"event": "verdict", "verdict": "invalid", "exit_code": 3}) == {"invalid"}
    assert verdicts({"event": "failed", "message": "m", "hint": "", "exit_code": 4}) == {"failed"}


# -- the endpoint ------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[Endpoint]:
    with Endpoint(load_scenario("smoke"), 0) as one:
        yield one


def test_it_is_read_over_http_and_only_here(served: Endpoint) -> None:
    for event in EVENTS:
        served.take(event)
    assert served.url.startswith("http://127.0.0.1:")
    found = parsed(read(served.url))
    assert value(found, "requests_total", arm="remote-hit", site="b", status="ok") == 1
    assert served.patience_s() == 0, "there is no verdict yet"


@pytest.mark.parametrize("path", ["/", "/metrics/../x", "/metricsx", "/favicon.ico"])
def test_there_is_nothing_else(served: Endpoint, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as error:
        read(served.url.replace("/metrics", path))
    error.value.close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost:{}", 200), ("evil.example:{}", 421), ("127.0.0.1.evil.example:{}", 421),
     ("127.0.0.1:1", 421), ("127.0.0.1", 421), ("", 421)],
)  # fmt: skip
def test_a_name_that_is_pointed_here_reads_nothing(
    served: Endpoint, host: str, expected: int
) -> None:
    """DNS rebinding: the address is ours, the name is not."""
    port = urllib.parse.urlsplit(served.url).port
    assert port is not None
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as asked:
        asked.request("GET", "/metrics", headers={"Host": host.format(port)})
        answer = asked.getresponse()
        assert answer.status == expected
        assert (b"geokv_" in answer.read()) == (expected == 200)
    assert served.patience_s() == 0, "there is no verdict yet"


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match=r"--prometheus: port \d+ cannot be had"):
            Endpoint(load_scenario("smoke"), other.getsockname()[1])


def test_who_never_read_is_not_waited_for() -> None:
    start_s = time.monotonic()
    with Endpoint(load_scenario("smoke"), 0) as one:
        one.take({"event": "verdict", "verdict": "pass"})
        assert one.patience_s() == 0
    assert time.monotonic() - start_s < 2


def test_who_reads_gets_the_verdict_before_it_is_gone() -> None:
    one = Endpoint(load_scenario("smoke"), 0)
    last: list[Samples] = []

    def reader() -> None:
        time.sleep(1.0)
        last.append(parsed(read(one.url)))

    thread = threading.Thread(target=reader)
    with one:
        read(one.url)
        one.take({"event": "verdict", "verdict": "pass"})
        assert 15 < one.patience_s() < 30
        start_s = time.monotonic()
        thread.start()
    assert 0.9 < time.monotonic() - start_s < 10
    thread.join()
    assert value(last[0], "verdict", verdict="pass") == 1
    with pytest.raises(urllib.error.URLError):
        read(one.url)


def test_a_reader_that_stays_away_holds_nothing_up_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_module, "LONGEST_S", 0.3)
    start_s = time.monotonic()
    with Endpoint(load_scenario("smoke"), 0) as one:
        read(one.url)
        one.take({"event": "verdict", "verdict": "pass"})
    assert 0.3 <= time.monotonic() - start_s < 10


def test_a_run_that_breaks_says_so_to_who_reads() -> None:
    last: list[Samples] = []

    def reader(url: str) -> None:
        time.sleep(0.5)
        last.append(parsed(read(url)))

    said = io.StringIO()
    with (
        pytest.raises(RunError, match="no more room"),
        figures_at(load_scenario("smoke"), 0, Console(file=said)) as take,
    ):
        (url,) = re.findall(r"http://\S+", said.getvalue())
        read(url)
        take(FOLDER)
        thread = threading.Thread(target=reader, args=(url,))
        thread.start()
        raise RunError("no more room", "make some")
    thread.join()
    assert value(last[0], "verdict", verdict="failed") == 1
    assert value(last[0], "verdict", verdict="running") == 0
    assert "waiting for Prometheus to read the verdict" in said.getvalue()


def test_a_run_that_is_stopped_waits_for_nobody() -> None:
    start_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Endpoint(load_scenario("smoke"), 0) as one:
        read(one.url)
        one.take({"event": "verdict", "verdict": "pass"})
        raise KeyboardInterrupt
    assert time.monotonic() - start_s < 5


# -- Grafana -----------------------------------------------------------------------


def expressions(board: dict[str, Any]) -> list[tuple[str, str]]:
    """(expression, legend) of all panels and annotations."""
    asked = [(one["expr"], one.get("titleFormat", "")) for one in board["annotations"]["list"]]
    for panel in board["panels"]:
        asked += [(one["expr"], one["legendFormat"]) for one in panel["targets"]]
    return asked


def test_all_that_the_dashboard_asks_for_is_there() -> None:
    """Every metric, and every label it filters, sums or names by."""
    labels: dict[str, set[str]] = {}
    for name, pairs in told(*EVENTS):
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    seen = set()
    for expression, legend in expressions(board):
        (name,) = set(re.findall(r"geokv_run_\w+", expression))
        seen.add(name)
        assert name in labels, expression
        known = labels[name] | {"job"}
        filtered = re.search(re.escape(name) + r"\{([^}]*)\}", expression)
        assert filtered is not None, "runs of other jobs would be mixed in"
        used = re.findall(r"(\w+)\s*=~?\"", filtered[1])
        for group in re.findall(r"by \(([^)]*)\)", expression):
            used += [one.strip() for one in group.split(",")]
        used += re.findall(r"\{\{(\w+)\}\}", legend)
        assert "job" in used and set(used) <= known, (expression, used)
    left = {re.sub("_(bucket|sum|count)$", "", name) for name in labels} - {
        re.sub("_bucket$", "", name) for name in seen
    }
    # What a run is, and what a link is by plan, are labels and numbers to look up.
    assert left == {
        "geokv_run_info", "geokv_run_cells_planned", "geokv_run_elapsed_seconds",
        "geokv_run_link_rtt_seconds", "geokv_run_link_capacity_bytes_per_second",
        "geokv_run_fault_phases_total",
    }  # fmt: skip
