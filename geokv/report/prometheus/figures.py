"""What a run tells Prometheus, counted from its events (docs/live.md).

Names follow https://prometheus.io/docs/practices/naming: base units (seconds, bytes), ``_total``
for what only grows. All begin with ``geokv_run_``, so that they never meet those that a site has
under ``/metrics``.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from geokv.lab.topology import ends
from geokv.measure.hits import SOURCES, split
from geokv.measure.verdict import EXIT_CODES
from geokv.report.progress.plan import plan_of
from geokv.report.progress.tally import Tally
from geokv.scenario import Scenario
from geokv.scenario.workload import OpenLoop
from geokv.units import NS_PER_S

TTFT_BUCKETS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
)
"""From a hit on the device to a request's deadline."""
STATUSES = ("ok", "error", "refused", "unanswered")
"""Of a request; those of a measurement run end in one of the first two."""
LINK_STATES = ("ok", "degraded", "dark")
RUNNING, BROKEN = "running", "failed"
"""In place of a verdict: there is none yet, there will be none."""


class RunFigures:
    """Metrics of one run; ``take`` is told every event of it.

    Args:
        registry: where they are registered, each once.
    """

    def __init__(self, scenario: Scenario, registry: CollectorRegistry) -> None:
        # Those are the times of day at which counters were made.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry
        self._tally = Tally(plan_of(scenario))
        self._cells = {cell.index: cell for cell in scenario.cells()}
        self._seen_bytes: dict[tuple[str, str], int] = {}
        self._about(scenario)
        self._progress()
        counter, gauge = self._counter, self._gauge
        self._requests = counter(
            "requests", "Requests that have ended, warm-ups left out.", "arm", "site", "status"
        )
        self._ttft = Histogram(
            "geokv_run_time_to_first_token_seconds",
            "From the client's send to its first token, on the run's clock.",
            ("arm", "site"),
            registry=registry,
            buckets=TTFT_BUCKETS_S,
        )
        self._tokens = counter(
            "prompt_tokens", "Prompt tokens by where they came from.", "site", "tier"
        )
        self._wire = counter("wire_bytes", "Payload fetched from other sites, as moved.", "site")
        self._in_flight = gauge("in_flight_requests", "Requests under way at all sites.")
        self._up = gauge("site_up", "Whether a site's process is there.", "site")
        self._answers = gauge("site_answers", "Whether it answers its control socket.", "site")
        self._places = gauge(
            "pool_places",
            "Blocks on the device, chunks elsewhere, by state.",
            "site", "pool", "state",
        )  # fmt: skip
        self._link_bytes = counter(
            "link_bytes", "Bytes on the wire, as moved.", "link", "direction"
        )
        self._load = gauge(
            "link_load_ratio", "Share of the line's rate that was used.", "link", "direction"
        )
        self._state = gauge("link_state", "1 for the state a link is in.", "link", "state")
        self._rtt = gauge("link_rtt_seconds", "Round trip as planned.", "link")
        self._rate = gauge(
            "link_capacity_bytes_per_second", "Of the deployment the run stands for.", "link"
        )
        self._phases = counter(
            "fault_phases", "What became of faults.", "fault", "kind", "target", "phase"
        )
        self._active = gauge(
            "fault_active", "1 from when a fault was seen until it had healed.",
            "fault", "kind", "target",
        )  # fmt: skip
        self._verdict = gauge("verdict", "1 for how the run was judged.", "verdict")
        self._judge(RUNNING)
        self._from_zero()

    def take(self, event: dict[str, Any]) -> None:
        """Count one event; kinds that nobody knows here are passed over."""
        self._tally.take(event)
        kind = event["event"]
        if kind == "request":
            self._request(event)
        elif kind == "sample":
            self._sample(event)
        elif kind == "fault":
            self._fault(event)
        elif kind == "cell":
            for link in event.get("links", ()):
                self._link(link)
        elif kind == "verdict":
            self._judge(event["verdict"])
        elif kind in ("failed", "error"):
            self._judge(BROKEN)
        for part, vm in self._tally.vms.items():
            self._clock.labels(part=part).set(vm.now_ns / NS_PER_S)

    def _about(self, scenario: Scenario) -> None:
        labels = {
            "scenario": scenario.name,
            "scenario_hash": scenario.hash,
            "clock": scenario.clock,
            "seed": str(scenario.seed),
            "byte_scale": str(scenario.deployment.byte_scale),
            "stands_for": scenario.deployment.stands_for,
        }
        self._gauge("info", "What runs; always 1.", *labels).labels(**labels).set(1)

    def _progress(self) -> None:
        tally, gauge = self._tally, self._gauge
        gauge("requests_planned", "Requests of all cells.").set(tally.plan.asked)
        gauge("cells_planned", "Cells of the run.").set(len(tally.plan.cells))
        gauge("cells_finished", "Cells that are over.").set_function(lambda: tally.cells_done)
        gauge("elapsed_seconds", "Real time since it began.").set_function(lambda: tally.elapsed_s)
        gauge(
            "left_seconds", "Real time until the last request, estimated; NaN while unknown."
        ).set_function(lambda: _number(tally.left_s()))
        self._clock = gauge("clock_seconds", "Of the run's own clock, by VM.", "part")

    def _from_zero(self) -> None:
        """Show every counter that is sure to grow before it does.

        ``rate`` and ``increase`` know what a series has gained since it was first read. One that
        begins at 3 has gained nothing yet, so an arm's first requests would never be drawn:
        https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics
        """
        for plan in self._tally.plan.cells:
            one = self._cells[plan.index].scenario
            workload = one.workload
            for site in workload.fetching if isinstance(workload, OpenLoop) else [workload.asker]:
                for arm in plan.arms:
                    for status in STATUSES if one.is_drill else STATUSES[:2]:
                        self._requests.labels(arm=arm, site=site, status=status)
                    self._ttft.labels(arm=arm, site=site)
                self._wire.labels(site=site)
                for tier in SOURCES:
                    self._tokens.labels(site=site, tier=tier)
            for link in one.topology.links:
                for direction in _ways(link):
                    self._link_bytes.labels(link=link, direction=direction)

    def _request(self, event: dict[str, Any]) -> None:
        arm = event.get("arm", "stream")
        if event["warmup"] or arm == "prepare":
            return
        site = event["site"]
        self._requests.labels(arm=arm, site=site, status=event["status"]).inc()
        if event["ttft_ns"] is not None:
            self._ttft.labels(arm=arm, site=site).observe(event["ttft_ns"] / NS_PER_S)
        if event["status"] != "ok":
            return
        self._wire.labels(site=site).inc(event["wire_bytes"])
        for tier, tokens in split(
            event["prompt_tokens"],
            event["cached_tokens"],
            event["chunks_local"],
            event["chunks_disk"],
            event["chunks_remote"],
            self._cells[event["cell"]].scenario.deployment.chunk_tokens,
        ).items():
            self._tokens.labels(site=site, tier=tier).inc(tokens)

    def _sample(self, event: dict[str, Any]) -> None:
        self._in_flight.set(event["in_flight"])
        for name, site in event["sites"].items():
            self._up.labels(site=name).set(site["up"])
            self._answers.labels(site=name).set(site["answers"])
            for pool, places in site.get("pools", {}).items():
                for state, count in places.items():
                    if state != "total":
                        self._places.labels(site=name, pool=pool, state=state).set(count)
        for name, link in event["links"].items():
            self._rtt.labels(link=name).set(link["rtt_ns"] / NS_PER_S)
            self._rate.labels(link=name).set(link["rate_bps"] / 8)
            for state in LINK_STATES:
                self._state.labels(link=name, state=state).set(link["state"] == state)
            for way, count, load in zip(_ways(name), link["bytes"], link["load"], strict=True):
                self._crossed(name, way, count, load)

    def _crossed(self, link: str, direction: str, count: int, load: float) -> None:
        """A cell with a network of its own begins to count anew."""
        before = self._seen_bytes.get((link, direction), 0)
        self._seen_bytes[link, direction] = count
        grown = count - before if count >= before else count
        self._link_bytes.labels(link=link, direction=direction).inc(grown)
        self._load.labels(link=link, direction=direction).set(load)

    def _link(self, link: dict[str, Any]) -> None:
        self._rtt.labels(link=link["link"]).set(link["rtt_ns"] / NS_PER_S)
        self._rate.labels(link=link["link"]).set(link["rate_bps"] / 8)

    def _fault(self, event: dict[str, Any]) -> None:
        labels = {"fault": event["name"], "kind": event["kind"], "target": event["target"]}
        phase = event["phase"]
        self._phases.labels(**labels, phase=phase).inc()
        if phase in ("asked", "took-effect", "healed"):
            self._active.labels(**labels).set(phase == "took-effect")

    def _judge(self, verdict: str) -> None:
        for word in (RUNNING, *EXIT_CODES, BROKEN):
            self._verdict.labels(verdict=word).set(word == verdict)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"geokv_run_{name}", what, labels, registry=self._registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"geokv_run_{name}", what, labels, registry=self._registry)


def _ways(link: str) -> tuple[str, str]:
    a, b = ends(link)
    return f"{a} to {b}", f"{b} to {a}"


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
