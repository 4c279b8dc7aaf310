"""One cell: set the links, check them, run every arm, check them again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from geokv.clock import now_ns, wait_until_ns
from geokv.coordinator.client import Question
from geokv.coordinator.deploy import API_PORT, tenants
from geokv.coordinator.fleet import Fleet
from geokv.lab.build import Lab
from geokv.lab.check import LinkCheck, check_links
from geokv.scenario import Cell, Scenario
from geokv.scenario.prompts import question as question_tokens
from geokv.scenario.prompts import shared_prefix
from geokv.site.record import RequestRecord

_WARM_FLOOR_BYTES = 4 * 2**20
_PREPARING = 2**31
_BEAT_NS = 100_000_000
_REUSE = {"recompute": "none", "local-hit": "local", "remote-hit": "remote"}

_NEVER_SERVED: dict[str, Any] = {
    "tenant": "",
    "prompt_tokens": 0,
    "cached_tokens": 0,
    "output_ids": [],
    "first_logits": [],
    "spans": None,
    "source": "none",
    "wire_bytes": 0,
    "chunks_remote": 0,
    "chunks_local": 0,
    "misses": {},
    "decode_ns": 0,
}
"""The serving side of a request that was refused at the door."""

Write = Callable[[str, dict[str, Any]], None]
Progress = Callable[..., None]


class CellRunner:
    """Runs cells on a built lab with a started fleet.

    Args:
        write: takes ``(file name, record)``; one JSON line each.
        progress: told about every step, for people and for the watchdog.
    """

    def __init__(
        self,
        scenario: Scenario,
        lab: Lab,
        fleet: Fleet,
        vocab: int,
        write: Write,
        progress: Progress,
    ) -> None:
        self._scenario = scenario
        self._lab = lab
        self._fleet = fleet
        self._vocab = vocab
        self._write = write
        self._progress = progress
        self._key = tenants(scenario)[0].api_key
        workload = scenario.workload
        self._prefix = shared_prefix(scenario.seed, workload.prefix_tokens, vocab)
        self._now: dict[str, Any] = {}

    def run(self, cell: Cell) -> None:
        """One cell, start to end; its record is written last."""
        started_ns = now_ns()
        workload = self._scenario.workload
        self._on_the_beat()
        self._set(cell)
        self._progress("cell", cell=cell.index, label=cell.label)
        before = self._check(cell, "before")
        late_before = self._late_ns()
        self._warm()
        self._prepare(cell)
        for arm in self._scenario.arms:
            for repeat in range(workload.warmup):
                self._request(cell, arm, repeat, warmup=True)
            for repeat in range(workload.requests):
                self._request(cell, arm, repeat, warmup=False)
        integrity = {}
        for name, site in self._fleet.sites.items():
            site.post("/settle")
            integrity[name] = site.get("/integrity")["integrity"]
        late = {name: ns - late_before[name] for name, ns in self._late_ns().items()}
        after = self._check(cell, "after")
        path = self._lab.plan.path(workload.provider, workload.asker)
        self._write(
            "cells",
            {
                "cell": cell.index,
                "settings": cell.settings,
                "out_of_range": cell.out_of_range,
                "started_ns": started_ns,
                "ended_ns": now_ns(),
                "links": [*before, *after],
                "path": {
                    "rtt_ns": path.rtt_ns,
                    "payload_rate_bps": path.payload_rate_bps,
                    "rate_bps": path.rate_bps,
                },
                "integrity": integrity,
                "late_ns": late,
            },
        )

    def _late_ns(self) -> dict[str, int]:
        return {name: site.get("/stats")["late_ns"] for name, site in self._fleet.sites.items()}

    # -- the network -----------------------------------------------------------

    def _set(self, cell: Cell) -> None:
        """Change live what differs from the cell before; every cell sets every swept path."""
        wanted: dict[str, dict[str, Any]] = {}
        for path, value in cell.settings.items():
            _, link, name = path.split(".", 2)
            wanted.setdefault(link, {})[name] = value
        for link, changes in wanted.items():
            if self._now.get(link) != changes:
                self._lab.change(link, **changes)
                self._now[link] = changes

    def _check(self, cell: Cell, phase: str) -> list[dict[str, Any]]:
        self._progress("check", cell=cell.index, phase=phase)
        found = check_links(self._lab, clock=self._scenario.clock)
        return [_link_record(one, phase) for one in found]

    def _warm(self) -> None:
        """Fresh connections for this cell, with open congestion windows if asked for."""
        for site in self._fleet.sites.values():
            site.post("/connect", deadline_s=60)
        substrate = self._scenario.cache.substrate
        if not substrate.warm:
            return
        workload = self._scenario.workload
        bdp_bytes = self._lab.plan.path(workload.provider, workload.asker).bdp_bytes
        # Slow start doubles: a window of w has cost about 2 w by the time it is open.
        per_stream = max(_WARM_FLOOR_BYTES, 4 * bdp_bytes // substrate.streams)
        self._fleet.sites[workload.asker].post("/warm", bytes_per_stream=per_stream)

    # -- requests --------------------------------------------------------------

    def _prepare(self, cell: Cell) -> None:
        """Empty every cache, then let the provider compute, store and publish the prefix."""
        workload = self._scenario.workload
        for site in self._fleet.sites.values():
            site.post("/settle")
            site.post("/drop", tiers=["device", "dram"])
        provider = self._fleet.sites[workload.provider]
        provider.post("/policy", reuse="local")
        self._ask(cell, "prepare", 0, True, workload.provider)
        provider.post("/settle")

    def _request(self, cell: Cell, arm: str, repeat: int, warmup: bool) -> None:
        """One request of one arm, with the asker's caches as the arm wants them."""
        workload = self._scenario.workload
        asker = self._fleet.sites[workload.asker]
        asker.post("/settle")
        asker.post("/policy", reuse=_REUSE[arm])
        if arm != "local-hit":
            asker.post("/drop", tiers=["device", "dram"])
        elif repeat == 0:
            self._make_local(cell, warmup)
        self._ask(cell, arm, repeat, warmup, workload.asker)

    def _make_local(self, cell: Cell, warmup: bool) -> None:
        """Bring the prefix to the asker's device before its first local hit."""
        workload = self._scenario.workload
        asker = self._fleet.sites[workload.asker]
        self._ask(cell, "prepare", 1 + warmup, True, workload.asker)
        asker.post("/settle")

    def _ask(self, cell: Cell, arm: str, repeat: int, warmup: bool, site: str) -> None:
        workload = self._scenario.workload
        # A question that prepares a cache is never one that is asked again.
        number = repeat + _PREPARING if arm == "prepare" else repeat
        tail = question_tokens(
            self._scenario.seed,
            cell.index,
            number,
            workload.question_tokens,
            self._vocab,
            warmup=warmup,
        )
        kind = "w" if warmup else "r"
        request_id = f"c{cell.index}-{arm}-{kind}{repeat}"
        self._on_the_beat()
        reply = self._fleet.clients[site].ask(
            Question(
                request_id,
                f"http://{self._lab.address(site)}:{API_PORT}/v1/completions",
                self._key,
                self._scenario.deployment.model,
                self._prefix + tail,
                workload.output_tokens,
                workload.deadline,
            )
        )
        row: dict[str, Any] = {
            "request_id": request_id,
            "cell": cell.index,
            "arm": arm,
            "repeat": repeat,
            "warmup": warmup,
            "site": site,
            "status": "error" if reply.error else "ok",
            "error": reply.error,
            "text": reply.text,
            "sent_ns": reply.sent_ns,
            "first_ns": reply.first_ns,
            "done_ns": reply.done_ns,
            "ttft_ns": None if reply.first_ns is None else reply.first_ns - reply.sent_ns,
        }
        row.update(self._served(site, request_id, reply.sent_ns, reply.first_ns))
        self._write("requests", row)
        self._progress(
            "request",
            cell=cell.index,
            arm=arm,
            repeat=repeat,
            warmup=warmup,
            ttft_ms=None if row["ttft_ns"] is None else row["ttft_ns"] / 1e6,
            error=reply.error,
        )

    def _on_the_beat(self) -> None:
        """In virtual time, go on at the next whole tenth of a second.

        Reading the clock costs virtual time (256 ns), so what came before takes some µs more
        or less: in a first run Python compiles, in a second it does not. The kernel rounds
        to its own ticks; from a beat on, every run is rounded alike (INV-9).
        """
        if self._scenario.clock == "virtual":
            asyncio.run(wait_until_ns((now_ns() // _BEAT_NS + 1) * _BEAT_NS))

    def _served(
        self, site: str, request_id: str, sent_ns: int, first_ns: int | None
    ) -> dict[str, Any]:
        """The serving site's part of a request's record."""
        data = self._fleet.sites[site].get(f"/requests/{request_id}")["record"]
        if data is None:
            return dict(_NEVER_SERVED)
        source = data.pop("source")
        record = RequestRecord(**data)
        whole = first_ns is not None and record.prefilled_ns > 0
        spans = record.spans_ns(sent_ns, first_ns) if whole and first_ns is not None else None
        return {
            "tenant": record.tenant,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "output_ids": record.output_ids,
            "first_logits": record.first_logits,
            "spans": spans,
            "source": source,
            "wire_bytes": record.wire_bytes,
            "chunks_remote": record.chunks_remote,
            "chunks_local": record.chunks_local,
            "misses": record.misses,
            "decode_ns": record.finished_ns - record.prefilled_ns if whole else 0,
        }


def _link_record(check: LinkCheck, phase: str) -> dict[str, Any]:
    forward, backward = check.goodput_forward_bps, check.goodput_backward_bps
    worse = None if forward is None or backward is None else min(forward, backward)
    return {
        "link": check.link,
        "phase": phase,
        "rtt_asked_ns": check.rtt_asked_ns,
        "rtt_expected_ns": check.rtt_expected_ns,
        "rtt_measured_ns": check.rtt_measured_ns,
        "rtt_p99_ns": check.rtt_p99_ns,
        "jitter_measured_ns": check.jitter_measured_ns,
        "loss_measured": check.loss_measured,
        "goodput_asked_bps": check.goodput_asked_bps,
        "goodput_measured_bps": worse,
        "goodput_forward_bps": forward,
        "goodput_backward_bps": backward,
        "drops": check.dropped_packets,
        "ok": check.ok,
        "problems": check.problems,
    }
