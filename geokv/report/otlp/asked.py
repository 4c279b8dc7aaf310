"""Every request of a finished run, in one shape for measurement runs and drills."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geokv.errors import ConfigError
from geokv.measure.checker.exchanges import exchanges
from geokv.measure.checker.history import Event, History, load_histories
from geokv.measure.drill.faults import FaultSeen, faults_seen, shown
from geokv.measure.records import Request, load_requests
from geokv.measure.spans import SPAN_NAMES
from geokv.scenario import Cell, Scenario
from geokv.scenario.cells import path_links
from geokv.scenario.load import read_back

_OF_A_REQUEST = ("lookup", "fetch", "use", "miss")
"""Operations of a history that name the request they were done for."""
_STAMPS = ("asked_ns", "first_byte_ns", "last_byte_ns", "verified_ns")
_DULL = {"t_ns", "op", "cell", "request_id", "checksums", "incarnation", "generation", *_STAMPS}
"""Of an event: said by the trace already, or of no use to who reads it."""


@dataclass(frozen=True)
class Moment:
    """Something that happened while a request was under way."""

    t_ns: int
    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """A chunk that came from another site for a request, by the stamps of who asked for it."""

    asked_ns: int
    first_byte_ns: int
    last_byte_ns: int
    verified_ns: int
    data: dict[str, Any]


@dataclass
class Asked:
    """One request.

    Attributes:
        name: its arm; of a drill ``stream``.
        done_ns: when its client had the last token, an error, or enough.
        first_ns: the first token; None when none came.
        spans_ns: name → length, in order; they add up to ``first_ns - sent_ns``. Empty where the
            site's word on it was lost.
        links: of the ways on which chunks came to it, as planned.
        error: empty when it was answered.
    """

    request_id: str
    cell: Cell
    name: str
    site: str
    sent_ns: int
    first_ns: int | None
    done_ns: int
    error: str
    spans_ns: dict[str, int]
    data: dict[str, Any]
    links: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)


def asked_in(run_dir: Path) -> tuple[Scenario, Iterator[Asked]]:
    """The scenario of a run, and its requests cell by cell in the order they were sent.

    Raises:
        ConfigError: no such folder.
        RunError: the run has no records or a broken one.
    """
    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: no such run folder", "runs are kept under results/")
    scenario = read_back(run_dir / "scenario.yaml")
    cells = {cell.index: cell for cell in scenario.cells()}
    rows = _of_a_drill(run_dir, cells) if scenario.is_drill else _measured(run_dir, cells)
    return scenario, rows


def _measured(run_dir: Path, cells: dict[int, Cell]) -> Iterator[Asked]:
    moments: dict[str, list[Moment]] = defaultdict(list)
    pieces: dict[str, list[Piece]] = defaultdict(list)
    # A run whose sites keep no history has its requests all the same.
    whole = (run_dir / "history.jsonl").is_file()
    for history in load_histories(run_dir) if whole else ():
        _read(history, moments, pieces)
    for row in sorted(load_requests(run_dir), key=lambda row: (row.cell, row.sent_ns)):
        cell, came = cells[row.cell], pieces[row.request_id]
        # Without a history: the one that has it.
        given = [cell.scenario.workload.provider] if row.chunks_remote and not whole else []
        yield Asked(
            row.request_id,
            cell,
            row.arm,
            row.site,
            row.sent_ns,
            row.first_ns,
            row.done_ns,
            row.error or "",
            _spans(row.spans),
            _figures(row) | {"repeat": row.repeat, "warmup": row.warmup},
            _links(cell, [*given, *_sources(came)], row.site),
            moments[row.request_id],
            came,
        )


def _spans(spans: Any) -> dict[str, int]:
    """Of a record or of an answer, whose keys are the record's."""
    if spans is None:
        return {}
    if isinstance(spans, dict):
        return {name: spans[f"{name}_ns"] for name in SPAN_NAMES}
    return {name: getattr(spans, f"{name}_ns") for name in SPAN_NAMES}


def _figures(row: Request) -> dict[str, Any]:
    return {
        "tenant": row.tenant,
        "source": row.source,
        "prompt_tokens": row.prompt_tokens,
        "output_tokens": len(row.output_ids),
        "cached_tokens": row.cached_tokens,
        "chunks_remote": row.chunks_remote,
        "chunks_local": row.chunks_local,
        "wire_bytes": row.wire_bytes,
        "misses": row.misses,
    }


def _of_a_drill(run_dir: Path, cells: dict[int, Cell]) -> Iterator[Asked]:
    for history in load_histories(run_dir):
        assert history.cell is not None, "cells of a drill have histories of their own"
        cell, faults = cells[history.cell], faults_seen(history)
        moments: dict[str, list[Moment]] = defaultdict(list)
        pieces: dict[str, list[Piece]] = defaultdict(list)
        _read(history, moments, pieces)
        gave_up = {event["request_id"]: event["waited_ns"] for event in history.of("unanswered")}
        for one in exchanges(history):
            answer: Event = one.answer or {}
            sent_ns = int(answer.get("sent_ns", one.sent_ns))
            done_ns = int(answer.get("done_ns", sent_ns + gave_up.get(one.request_id, 0)))
            seen = [moment for fault in faults for moment in _phases(fault, sent_ns, done_ns)]
            yield Asked(
                one.request_id,
                cell,
                "stream",
                one.site,
                sent_ns,
                answer.get("first_ns"),
                done_ns,
                str(answer.get("error") or ("" if one.ok else "no answer by its deadline")),
                _spans(answer.get("spans")),
                {
                    "tenant": one.tenant,
                    "source": answer.get("source", "none"),
                    "prompt_tokens": one.prompt_tokens,
                    "output_tokens": len(answer.get("output_ids") or ()),
                    "cached_tokens": one.cached_tokens,
                    "chunks_remote": one.chunks_remote,
                    "chunks_local": int(answer.get("chunks_local") or 0),
                    "wire_bytes": int(answer.get("wire_bytes") or 0),
                    "misses": answer.get("misses") or {},
                    "faults": [fault.name for fault in faults if _lasts(fault, sent_ns, done_ns)],
                },
                _links(cell, _sources(pieces[one.request_id]), one.site),
                [*moments[one.request_id], *seen],
                pieces[one.request_id],
            )


def _read(
    history: History, moments: dict[str, list[Moment]], pieces: dict[str, list[Piece]]
) -> None:
    """Sort by request what sites did for it."""
    for event in history.of(*_OF_A_REQUEST):
        name = event.get("request_id", "")
        data = {key: value for key, value in event.items() if key not in _DULL}
        if event["op"] != "fetch" or event.get("cause"):
            moments[name].append(Moment(event["t_ns"], event["op"], data))
        elif "asked_ns" in event:
            # Without stamps: of another layout, and told once more as what was made of it.
            asked, first, last, verified = (event[stamp] for stamp in _STAMPS)
            pieces[name].append(Piece(asked, first, last, verified, data))


def _sources(pieces: list[Piece]) -> list[str]:
    return [str(piece.data["source"]) for piece in pieces]


def _links(cell: Cell, sources: list[str], site: str) -> list[str]:
    ways = [path_links(cell.topology, one, site) for one in sorted(set(sources)) if one != site]
    return sorted({link for way in ways for link in way})


def _phases(fault: FaultSeen, from_ns: int, to_ns: int) -> Iterator[Moment]:
    """What a fault did within this time."""
    for event in fault.events:
        if from_ns <= event["t_ns"] <= to_ns:
            said = {"fault": fault.name, "kind": fault.kind, "target": fault.target}
            yield Moment(event["t_ns"], f"fault {event['phase']}", said | {"seen": shown(event)})


def _lasts(fault: FaultSeen, from_ns: int, to_ns: int) -> bool:
    """Whether it was in effect at any moment of this time."""
    took_ns, healed_ns = fault.took_ns, fault.healed_ns
    return took_ns is not None and took_ns <= to_ns and (healed_ns is None or healed_ns >= from_ns)
