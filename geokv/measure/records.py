"""The raw records of a run folder, typed. A line that is not exactly one is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from geokv.errors import RunError

ArmName = Literal[
    "recompute", "local-hit", "remote-hit", "control-foreign", "control-corrupt", "prepare"
]


class Spans(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the time to first token went, ns each; they add up to the TTFT."""

    queue_ns: int
    lookup_ns: int
    fetch_ns: int
    completion_ns: int
    load_ns: int
    prefill_ns: int
    first_byte_ns: int

    @property
    def total_ns(self) -> int:
        """Their sum: the TTFT."""
        return sum(getattr(self, name) for name in self.__struct_fields__)


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One request as its client saw it, with the spans of the site that served it."""

    request_id: str
    cell: int
    arm: ArmName
    repeat: int
    warmup: bool
    site: str
    tenant: str
    status: Literal["ok", "error"]
    error: str | None
    prompt_tokens: int
    cached_tokens: int
    output_ids: list[int]
    text: str
    first_logits: list[float]
    sent_ns: int
    first_ns: int | None
    done_ns: int
    ttft_ns: int | None
    """The client's own measurement: first_ns - sent_ns. None when no token came."""
    spans: Spans | None
    source: Literal["none", "device", "dram", "disk", "remote"]
    wire_bytes: int
    """Payload that crossed links for this request, as moved (already divided by S)."""
    chunks_remote: int
    chunks_local: int
    """From this site's tiers below the device."""
    misses: dict[str, int]
    decode_ns: int
    chunks_disk: int = 0
    """Of ``chunks_local``, those that came up from the disk."""
    device_tokens: int = 0
    chunks_by_site: dict[str, int] = {}
    """``chunks_remote`` by the site that sent them."""
    max_tokens: int = 0
    """Longest answer that was asked for."""
    blocks: list[str] = []
    """Names of the prompt's blocks, each with all before it; the rest at the end included."""
    block_tokens: int = 0
    setup: list[str] = []
    """What was done to sites before it was sent, since the request before it."""

    @property
    def timed(self) -> bool:
        """Has an answer, a TTFT and its spans."""
        return self.status == "ok" and self.ttft_ns is not None and self.spans is not None


class LinkRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One self-check of one link. None is what the check could not measure."""

    link: str
    phase: Literal["before", "after"]
    rtt_asked_ns: int
    rtt_measured_ns: int | None
    goodput_asked_bps: int
    goodput_measured_bps: int | float | None
    """TCP payload, the worse direction."""
    drops: int
    ok: bool
    problems: list[str]
    rtt_expected_ns: int | None = None
    """Asked, plus the probe's own time on the wire: what the check compared."""
    rtt_max_ns: int | None = None
    rtt_p99_ns: int | None = None
    """Of records of before: the largest, too, for there are some twenty echoes."""
    jitter_measured_ns: int | None = None
    loss_measured: float | None = None
    goodput_forward_bps: float | None = None
    goodput_backward_bps: float | None = None


class PathRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was planned between the two sites of the workload; rates divided by S."""

    rtt_ns: int
    payload_rate_bps: int
    rate_bps: int


class CellRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of ``records/cells.jsonl``: what was measured of a cell beside its requests."""

    cell: int
    settings: dict[str, int | float | str]
    out_of_range: bool
    started_ns: int
    ended_ns: int
    links: list[LinkRecord]
    path: PathRecord
    integrity: dict[str, str]
    """Site → ``ok`` or what its pools and tables contradict."""
    late_ns: dict[str, int] = {}
    """Site → time by which computing outlasted what was charged for it in this cell."""
    timers: Timers | None = None
    """On the wall clock."""
    directory: dict[str, dict[str, dict[str, int]]] = {}
    """Site → operation → calls and bytes that went over a link to the directory."""
    planted: dict[str, str] = {}
    """Control arm → what the asker's integrity check said once its KV had been made wrong."""


class Timers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of a cell in real time: wake-ups of a timer, those later than 1 ms, and the latest."""

    timers: int
    late: int
    worst_ns: int


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of a cell in real time, from outside: what the run's threads waited for a processor."""

    cell: int
    elapsed_ns: int
    run_queue_wait_ns: int
    processors: int
    """That the run had to wait for."""
    others_ns: int | None = None
    """Time of these processors that neither the run had nor nobody; None in older runs."""

    @property
    def share(self) -> float:
        """At most so much of the time, times the processors there were, it waited for others: not
        longer than it waited at all, nor than others had a processor."""
        time_ns = self.elapsed_ns * self.processors
        waited_ns = self.run_queue_wait_ns
        if self.others_ns is not None:
            waited_ns = min(waited_ns, self.others_ns)
        return waited_ns / time_ns if time_ns > 0 else 0.0


class PromptLengths(msgspec.Struct, frozen=True, kw_only=True):
    """Of the longest prompt: what all share, and the rest."""

    prefix_tokens: int
    question_tokens: int


class Formula(msgspec.Struct, frozen=True, kw_only=True):
    """What ``break_even.bytes_per_flop`` asks of the deployment a run stands for."""

    width: int
    gqa: float
    matrix_operations: float
    flops: float
    """Peak of all its GPUs, as their data sheets have it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run's numbers come from. More keys than these are kept, not judged."""

    clock: Literal["virtual", "wall"]
    kernel: str
    byte_scale: int
    seed: int
    model: str
    stands_for: str
    versions: dict[str, str]
    scenario_hash: str
    profile: dict[str, Any]
    prompt: PromptLengths | None = None
    formula: Formula | None = None

    @property
    def kv_bytes_per_token(self) -> int:
        """Of the deployment the run stands for; 0 where its profile is not recorded."""
        return int(self.profile.get("kv_bytes_per_token", 0))


Row = TypeVar("Row", bound=msgspec.Struct)


def load_requests(run_dir: Path) -> list[Request]:
    """``records/requests.jsonl``, in file order.

    Raises:
        RunError: missing file, or a bad line, named ``file:line``.
    """
    return _load_lines(run_dir / "records" / "requests.jsonl", Request)


def load_cells(run_dir: Path) -> list[CellRecord]:
    """``records/cells.jsonl``, ordered by cell.

    Raises:
        RunError: missing file, a bad line, or a cell recorded twice.
    """
    path = run_dir / "records" / "cells.jsonl"
    cells = sorted(_load_lines(path, CellRecord), key=lambda row: row.cell)
    numbers = [row.cell for row in cells]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise RunError(f"{path}: cell {twice[0]} is recorded twice")
    return cells


def load_waits(run_dir: Path) -> dict[int, Wait]:
    """``records/waits.jsonl`` by cell; empty where the host counted nothing.

    Raises:
        RunError: a bad line, named ``file:line``.
    """
    path = run_dir / "records" / "waits.jsonl"
    return {row.cell: row for row in _load_lines(path, Wait)} if path.is_file() else {}


def load_manifest(run_dir: Path) -> tuple[Manifest, dict[str, Any]]:
    """``manifest.json``: its typed part and the whole.

    Raises:
        RunError: missing, not JSON, or without a needed key.
    """
    path = run_dir / "manifest.json"
    text = _read(path)
    try:
        return msgspec.json.decode(text, type=Manifest), msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise RunError(f"{path}: {error}") from None


def _load_lines(path: Path, kind: type[Row]) -> list[Row]:
    decoder = msgspec.json.Decoder(kind)
    rows = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        try:
            rows.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise RunError(
                f"{path}:{number}: not a record ({error})",
                "the run was cut off while writing, or another version of geokv wrote it",
            ) from None
    return rows


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(
            f"{path}: cannot be read ({error.strerror})",
            "give the folder of a finished run, as results/distance_ttft/<stamp>-<hash>",
        ) from None
