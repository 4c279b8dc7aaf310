"""One request: sent by a client, and put together with what the serving site says of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from geokv.clock import on_the_beat
from geokv.coordinator.client import Question, Reply
from geokv.coordinator.deploy import API_PORT
from geokv.coordinator.fleet import Fleet
from geokv.coordinator.prompts import Prompts
from geokv.coordinator.tracing import Setup, block_tokens, prompt_blocks
from geokv.lab.build import Lab
from geokv.scenario import Scenario
from geokv.site.record import RequestRecord
from geokv.site.settings import Tenant

_TOLD = (
    "request_id",
    "site",
    "tenant",
    "status",
    "error",
    "sent_ns",
    "ttft_ns",
    "source",
    "prompt_tokens",
    "cached_tokens",
    "chunks_remote",
    "chunks_local",
    "chunks_disk",
    "wire_bytes",
)
"""What a step says of a request, beside what was asked."""

Write = Callable[[str, dict[str, Any]], None]
Progress = Callable[..., None]


class Asker:
    """Asks one thing at a time and writes a record of each.

    Args:
        setup: what is done to sites between requests; each record takes what came before it.
        write: takes ``(file name, record)``; one JSON line each.
        progress: told about every request, for people and for the watchdog.
    """

    def __init__(
        self,
        scenario: Scenario,
        tenants: Sequence[Tenant],
        lab: Lab,
        fleet: Fleet,
        prompts: Prompts,
        setup: Setup,
        write: Write,
        progress: Progress,
    ) -> None:
        self._scenario = scenario
        self._lab = lab
        self._fleet = fleet
        self._prompts = prompts
        self._setup = setup
        self._block_tokens = block_tokens(scenario)
        self._write = write
        self._progress = progress
        self._keys = [tenant.api_key for tenant in tenants]

    def prepare(self, cell: int, number: int, site: str) -> None:
        """Have ``site`` answer one token behind the prefix; prepares a cache."""
        tokens = self._prompts.preparing(cell, number)
        self._ask(cell, "prepare", number, True, site, tokens, 1)

    def prepare_foreign(self, cell: int, number: int, site: str) -> None:
        """The same of another text, by another tenant."""
        tokens = self._prompts.foreign()
        self._ask(cell, "prepare", number, True, site, tokens, 1, tenant=1)

    def question(self, cell: int, arm: str, repeat: int, warmup: bool, site: str) -> None:
        """Ask a question of an arm."""
        tokens = self._prompts.question(cell, repeat, warmup)
        time.sleep(self._scenario.workload.idle)
        most = self._scenario.workload.output_tokens
        self._ask(cell, arm, repeat, warmup, site, tokens, most)

    def on_the_beat(self) -> None:
        """In virtual time, go on at the next beat."""
        if self._scenario.clock == "virtual":
            asyncio.run(on_the_beat())

    def _ask(
        self,
        cell: int,
        arm: str,
        repeat: int,
        warmup: bool,
        site: str,
        tokens: list[int],
        max_tokens: int,
        tenant: int = 0,
    ) -> None:
        request_id = f"c{cell}-{arm}-{'w' if warmup else 'r'}{repeat}"
        self.on_the_beat()
        reply = self._fleet.clients[site].ask(
            Question(
                request_id,
                f"http://{self._lab.address(site)}:{API_PORT}/v1/completions",
                self._keys[tenant],
                self._scenario.deployment.model,
                tokens,
                max_tokens,
                self._scenario.workload.deadline,
                self._prompts.stop,
                self._prompts.to_the_end,
            )
        )
        ttft_ns = None if reply.first_ns is None else reply.first_ns - reply.sent_ns
        row: dict[str, Any] = {
            "request_id": request_id,
            "cell": cell,
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
            "ttft_ns": ttft_ns,
            "max_tokens": max_tokens,
            "blocks": prompt_blocks(tokens, self._block_tokens),
            "block_tokens": self._block_tokens,
            "setup": self._setup.take(),
        }
        row.update(self._served(site, reply))
        if arm == "prepare":
            row["first_logits"] = []
        self._write("requests", row)
        self._progress(
            "request",
            cell=cell,
            arm=arm,
            repeat=repeat,
            warmup=warmup,
            ttft_ms=None if ttft_ns is None else ttft_ns / 1e6,
            **{name: row[name] for name in _TOLD},
        )

    def _served(self, site: str, reply: Reply) -> dict[str, Any]:
        """The serving site's part of a request's record."""
        data = self._fleet.sites[site].get(f"/requests/{reply.request_id}")["record"]
        if data is None:
            # Refused at the door.
            data = {**RequestRecord(reply.request_id, "", 0, 0).as_dict(), "first_logits": []}
        source, first_logits = data.pop("source"), data.pop("first_logits")
        record = RequestRecord(**data)
        spans, decode_ns = None, 0
        if reply.first_ns is not None and record.prefilled_ns > 0:
            spans = record.spans_ns(reply.sent_ns, reply.first_ns)
            decode_ns = record.finished_ns - record.prefilled_ns
        return {
            "tenant": record.tenant,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "device_tokens": record.device_tokens,
            "output_ids": record.output_ids,
            # Nine digits tell every float32 from every other, and are half of what JSON
            # would write.
            "first_logits": [float(f"{logit:.9g}") for logit in first_logits],
            "spans": spans,
            "source": source,
            "wire_bytes": record.wire_bytes,
            "chunks_remote": record.chunks_remote,
            "chunks_by_site": record.chunks_by_site,
            "chunks_local": record.chunks_local,
            "chunks_disk": record.chunks_disk,
            "misses": record.misses,
            "decode_ns": decode_ns,
        }
