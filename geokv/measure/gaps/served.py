"""Requests of a run as all gaps see them: one row each, whatever kind of run it was."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geokv.measure.checker.exchanges import Exchange, exchanges
from geokv.measure.checker.history import History, load_parts
from geokv.measure.records import CellRecord, Request
from geokv.measure.spans import SPAN_NAMES
from geokv.scenario import Cell, Scenario
from geokv.scenario.model import CONTROLS

ALL = "all"
"""Group of all requests of a drill, which has no arms."""
PREPARE = "prepare"
"""Category of requests that only fill caches."""
QUESTION = "question"
Traffic = dict[str, dict[str, dict[str, int]]]
"""Site → operation of the directory → calls, sent_bytes, received_bytes."""


@dataclass(frozen=True)
class Served:
    """One request. Counts are of tokens and chunks as its site told them; times are ns.

    Attributes:
        group: the arm, or ``all``; of a preparing request ``prepare``.
        counted: measured, neither a warm-up nor preparing.
        spans: additive parts of the TTFT by name, None without a first token.
        blocks: names of the prompt's blocks of ``block_tokens``, each with all before it.
        setup: what was done to sites before it was sent.
        due_ns: when it was to be sent; ``sent_ns`` is when it was.
    """

    request_id: str
    cell: int
    group: str
    category: str
    tenant: str
    site: str
    counted: bool
    warmup: bool
    ok: bool
    sent_ns: int
    due_ns: int
    done_ns: int | None
    ttft_ns: int | None
    spans: dict[str, int] | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    chunks_remote: int
    chunks_local: int
    chunks_disk: int
    chunks_by_site: dict[str, int]
    wire_bytes: int
    blocks: tuple[str, ...]
    block_tokens: int
    setup: tuple[str, ...]
    session: str | None = None
    door: str | None = None
    """Where it came in, if another site than ``site``."""

    @property
    def timed(self) -> bool:
        """Whether it was answered and has a TTFT with all its spans."""
        return self.ok and self.ttft_ns is not None and self.spans is not None

    def span(self, *names: str) -> int:
        """Sum of these parts; 0 without any."""
        spans = self.spans or {}
        return sum(spans.get(name, 0) for name in names)

    def chunk_names(self, chunk_tokens: int) -> list[str]:
        """Names of the prompt's whole chunks, in order; empty where blocks are not known or
        do not divide chunks."""
        size = self.block_tokens
        if not size or chunk_tokens % size:
            return []
        step = chunk_tokens // size
        return list(self.blocks[step - 1 : self.prompt_tokens // size : step])


@dataclass(frozen=True)
class CellView:
    """What is known of one cell.

    Attributes:
        requests: in the order of sending; arms with planted KV left out.
        history: None where sites wrote none.
        traffic: of the directory over links; None where it was not recorded.
        valid: links kept to their plan. Of a cell where they did not no number counts.
    """

    cell: Cell
    requests: list[Served]
    history: History | None
    traffic: Traffic | None
    valid: bool = True

    @property
    def scenario(self) -> Scenario:
        """Of the cell, its swept values set."""
        return self.cell.scenario

    def chunk_tokens(self, site: str) -> int:
        """Tokens of one chunk at this site."""
        return self.scenario.deployment.at(site).chunk_tokens

    @property
    def groups(self) -> dict[str, list[Served]]:
        """Arm, or ``all``, → its counted requests."""
        found: dict[str, list[Served]] = {}
        for one in self.requests:
            if one.counted:
                found.setdefault(one.group, []).append(one)
        return found

    @property
    def place(self) -> dict[str, Any]:
        """How a row of ``summary.json`` names the cell."""
        return {"cell": self.cell.index, "label": self.cell.label, "valid": self.valid}


def measured_views(
    run_dir: Path,
    cells: Sequence[Cell],
    requests: Sequence[Request],
    records: Sequence[CellRecord],
    void: Collection[int] = (),
) -> list[CellView]:
    """Cells of a measurement run, as far as it got.

    Args:
        void: cells of which no number counts.

    Raises:
        RunError: a line of a history is no event.
    """
    parts = load_parts(run_dir)
    by_index = {record.cell: record for record in records}
    views = []
    for cell in cells:
        record = by_index.get(cell.index)
        rows = sorted((one for one in requests if one.cell == cell.index), key=_sent)
        history = _within(parts[cell.index % len(parts)], record) if parts and record else None
        traffic = (record.directory or None) if record else None
        views.append(CellView(cell, _kept(rows), history, traffic, cell.index not in void))
    return views


def drill_views(
    cells: Sequence[Cell], histories: dict[int | None, History], void: Collection[int] = ()
) -> list[CellView]:
    """Cells of a drill, as far as it got.

    Args:
        void: cells of which no number counts.
    """
    views = []
    for cell in cells:
        history = histories.get(cell.index)
        if history is None:
            views.append(CellView(cell, [], None, None, cell.index not in void))
            continue
        start_ns = next((int(e["start_ns"]) for e in history.of("stream-begin")), 0)
        rows = [_prepared(event, cell.index) for event in history.of("prepared")]
        rows += [_exchanged(one, cell.index, start_ns) for one in exchanges(history)]
        traffic = {
            str(event["site"]): event["calls"]
            for event in history.of("traffic")
            if "calls" in event
        }
        views.append(CellView(cell, rows, history, traffic or None, cell.index not in void))
    return views


def _kept(rows: Sequence[Request]) -> list[Served]:
    """All but those of arms with planted KV; what was done to sites before these was done before
    the next one."""
    kept: list[Served] = []
    done: list[str] = []
    for one in rows:
        done += one.setup
        if one.arm not in CONTROLS:
            kept.append(_measured(one, tuple(done)))
            done = []
    return kept


def _sent(one: Request) -> int:
    return one.sent_ns


def _within(history: History, record: CellRecord) -> History:
    events = [e for e in history.events if record.started_ns <= e["t_ns"] <= record.ended_ns]
    return History(events, record.cell)


def _measured(one: Request, setup: tuple[str, ...]) -> Served:
    prepares = one.arm == PREPARE
    spans = one.spans
    return Served(
        request_id=one.request_id,
        cell=one.cell,
        group=one.arm,
        category=PREPARE if prepares else QUESTION,
        tenant=one.tenant,
        site=one.site,
        counted=not prepares and not one.warmup,
        warmup=one.warmup and not prepares,
        ok=one.status == "ok",
        sent_ns=one.sent_ns,
        due_ns=one.sent_ns,
        done_ns=one.done_ns,
        ttft_ns=one.ttft_ns,
        spans={name: getattr(spans, f"{name}_ns") for name in SPAN_NAMES} if spans else None,
        prompt_tokens=one.prompt_tokens,
        output_tokens=len(one.output_ids) if one.status == "ok" else one.max_tokens,
        cached_tokens=one.cached_tokens,
        chunks_remote=one.chunks_remote,
        chunks_local=one.chunks_local,
        chunks_disk=one.chunks_disk,
        chunks_by_site=one.chunks_by_site,
        wire_bytes=one.wire_bytes,
        blocks=tuple(one.blocks),
        block_tokens=one.block_tokens,
        setup=setup,
    )


def _prepared(event: dict[str, Any], cell: int) -> Served:
    return Served(
        request_id=event["request_id"],
        cell=cell,
        group=PREPARE,
        category=PREPARE,
        tenant=str(event.get("tenant", "")),
        site=event["site"],
        counted=False,
        warmup=False,
        ok=True,
        sent_ns=int(event.get("sent_ns", event["t_ns"])),
        due_ns=int(event.get("sent_ns", event["t_ns"])),
        done_ns=int(event["t_ns"]),
        ttft_ns=None,
        spans=None,
        prompt_tokens=int(event.get("prompt_tokens", 0)),
        output_tokens=int(event.get("max_tokens", 1)),
        cached_tokens=0,
        chunks_remote=0,
        chunks_local=0,
        chunks_disk=0,
        chunks_by_site={},
        wire_bytes=0,
        blocks=tuple(event.get("blocks", ())),
        block_tokens=int(event.get("block_tokens", 0)),
        setup=tuple(event.get("setup", ())),
    )


def _exchanged(one: Exchange, cell: int, start_ns: int) -> Served:
    asked, answer = one.request, one.answer or {}
    spans = answer.get("spans")
    ids = answer.get("output_ids")
    category = str(asked.get("category") or asked.get("probe") or QUESTION)
    prepares, warmup = category == PREPARE, bool(asked.get("warmup"))
    due_ns = start_ns + int(asked["due_ns"]) if start_ns and "due_ns" in asked else one.sent_ns
    return Served(
        request_id=one.request_id,
        cell=cell,
        group=PREPARE if prepares else ALL,
        category=category,
        tenant=one.tenant,
        site=one.site,
        counted=not prepares and not warmup,
        warmup=warmup,
        ok=one.ok,
        sent_ns=int(answer.get("sent_ns", one.sent_ns)),
        due_ns=due_ns,
        done_ns=int(answer["done_ns"]) if "done_ns" in answer else None,
        ttft_ns=one.ttft_ns,
        spans={name: int(spans.get(f"{name}_ns", 0)) for name in SPAN_NAMES} if spans else None,
        prompt_tokens=one.prompt_tokens,
        output_tokens=len(ids) if one.ok and ids is not None else int(asked.get("max_tokens", 0)),
        cached_tokens=one.cached_tokens,
        chunks_remote=one.chunks_remote,
        chunks_local=int(answer.get("chunks_local") or 0),
        chunks_disk=int(answer.get("chunks_disk") or 0),
        chunks_by_site=dict(answer.get("chunks_by_site") or {}),
        wire_bytes=int(answer.get("wire_bytes") or 0),
        blocks=tuple(asked.get("blocks", ())),
        block_tokens=int(asked.get("block_tokens", 0)),
        setup=tuple(asked.get("setup", ())),
        session=asked.get("session"),
        door=asked.get("door"),
    )
