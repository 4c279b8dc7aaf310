"""A real Prometheus that reads one endpoint, and what Grafana would ask it for a dashboard."""

from __future__ import annotations

import json
import math
import os
import re
import selectors
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

START_S = 60.0
END_S = 30.0


@dataclass(frozen=True)
class Series:
    """One line of a panel: its labels and (time, value)."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def numbers(self) -> list[float]:
        """Values that are numbers: Grafana draws no others."""
        return [value for _, value in self.points if not math.isnan(value)]


@dataclass(frozen=True)
class Prometheus:
    """One that runs, at ``url``; it reads every ``scrape_s``."""

    url: str
    scrape_s: float

    def range(self, query: str, from_s: float, to_s: float) -> list[Series]:
        """Every series of a query, at each read of this time."""
        found = self._ask("query_range", query=query, start=from_s, end=to_s, step=self.scrape_s)
        return [Series(one["metric"], _points(one["values"])) for one in found]

    def at(self, query: str, at_s: float) -> list[Series]:
        """Every series of a query at one moment."""
        found = self._ask("query", query=query, time=at_s)
        return [Series(one["metric"], _points([one["value"]])) for one in found]

    def values_of(self, label: str, metric: str) -> list[str]:
        """What Grafana's ``label_values(metric, label)`` asks."""
        found: list[str] = self._get(f"label/{label}/values", {"match[]": metric})
        return found

    def _ask(self, kind: str, **asked: Any) -> Any:
        return self._get(kind, {key: str(value) for key, value in asked.items()})["result"]

    def _get(self, path: str, asked: dict[str, str]) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success" and not found.get("warnings"), found
        return found["data"]


def require_prometheus() -> str:
    """Where its program is; skips the test where there is none."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (apt-get install prometheus)")
    return program


def endpoint_of(process: subprocess.Popen[str]) -> str:
    """Where a ``geokv run --prometheus`` says that its figures are."""
    assert process.stderr is not None
    match = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stderr.readline())
    assert match is not None
    return match[0]


@contextmanager
def prometheus_at(url: str, folder: Path, scrape_s: float) -> Iterator[Prometheus]:
    """Start one that reads ``url``, on a free port of this machine, wait until it has, and end it
    afterwards."""
    program = require_prometheus()
    parts = urllib.parse.urlsplit(url)
    settings = {
        "global": {"scrape_interval": f"{scrape_s * 1000:.0f}ms"},
        "scrape_configs": [
            {
                "job_name": "geokv",
                "metrics_path": parts.path,
                "static_configs": [{"targets": [parts.netloc]}],
            }
        ],
    }
    folder.mkdir()
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        prometheus = Prometheus(f"http://127.0.0.1:{_port(process)}", scrape_s)
        # It takes some seconds to turn to its targets.
        ends_s = time.monotonic() + START_S
        while not any(one.numbers == [1.0] for one in prometheus.at("up", time.time())):
            assert time.monotonic() < ends_s, f"{url} was not read within {START_S:.0f} s"
            time.sleep(0.1)
        yield prometheus
    finally:
        process.terminate()
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=END_S)


def _port(process: subprocess.Popen[bytes]) -> str:
    """The port it took, once it answers."""
    assert process.stderr is not None
    said, ends_s = "", time.monotonic() + START_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while "Server is ready" not in said:
            assert selector.select(ends_s - time.monotonic()), f"said only {said}"
            piece = os.read(process.stderr.fileno(), 65536).decode()
            assert piece, f"Prometheus ended: {said}"
            said += piece
    found = re.search(r'msg="Listening on" address=127\.0\.0\.1:(\d+)', said)
    assert found, said
    return found[1]


def _points(values: list[list[Any]]) -> list[tuple[float, float]]:
    return [(float(at_s), float(value)) for at_s, value in values]


# -- what Grafana does -------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One query of a panel or of an annotation."""

    title: str
    query: str
    instant: bool


def asked_by(board: dict[str, Any], prometheus: Prometheus, range_s: float) -> list[Asked]:
    """Every query of a dashboard, its variables filled in as Grafana does when all is chosen.

    ``$__rate_interval`` is four reads at least, and ``$__range`` what the page shows:
    https://grafana.com/docs/grafana/latest/datasources/prometheus/template-variables/
    """
    (job,) = [one for one in board["templating"]["list"] if one["name"] == "job"]
    filled = {
        "$job": job["allValue"],
        "$__rate_interval": f"{4 * prometheus.scrape_s * 1000:.0f}ms",
        "$__range": f"{range_s * 1000:.0f}ms",
    }
    asked = [Asked(one["name"], one["expr"], False) for one in board["annotations"]["list"]]
    for panel in board["panels"]:
        asked += [
            Asked(panel["title"], target["expr"], target["instant"]) for target in panel["targets"]
        ]
    return [Asked(one.title, _filled(one.query, filled), one.instant) for one in asked]


def _filled(query: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    return query
