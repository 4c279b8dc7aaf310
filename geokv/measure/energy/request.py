"""Energy proxy of one request: GPU and link, as ``table.csv`` and ``requests.parquet`` have it.

    E_gpu      = P_idle·T + (P_prefill - P_idle)·t_prefill + (P_decode - P_idle)·t_decode
    E_optics   = 2 ends · P_end · T · links        only when the request needs the link
    E_transfer = e_bit · bits · links

T runs from sending to the last token. The optics draw their watts lit or idle, so a
request that needs the link pays for it for all of its T; requests of the other arms
need no link. Bits are those of the deployment the run stands for (wire bytes times S).
Recomputing at the serving site is paid by the request, computing the prefix at the
providing site is not: it was done before, for another request. Form after Splitwise
(phases draw differently) and a fixed-plus-marginal model of the link. What stands around
GPU and link (hosts, switches, cooling) is added in ``account.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from geokv.measure.energy.constants import Constants, constants
from geokv.measure.records import Request, load_manifest, load_requests
from geokv.scenario import path_links, read_back
from geokv.units import NS_PER_S

ENDS_PER_LINK = 2


@dataclass(frozen=True)
class Joules:
    """The three parts of a request's energy proxy, in joules."""

    gpu_j: float
    optics_j: float
    transfer_j: float

    @property
    def total_j(self) -> float:
        """The proxy of ``table.csv``."""
        return self.gpu_j + self.optics_j + self.transfer_j


@dataclass(frozen=True)
class Phases:
    """What a request did that costs energy; of several, the mean of each.

    The proxy is linear in all of it, so the proxy of the mean is the mean of the proxies.
    """

    total_s: float
    """From sending to the last token."""
    prefill_s: float
    decode_s: float
    bits: float
    """That crossed each link, of the deployment the run stands for."""
    links: int
    needs_link: bool
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0


def phases_of(request: Request, links: int, byte_scale: int) -> Phases:
    """Of one timed request that is ``links`` links away from its KV."""
    assert request.spans is not None
    return Phases(
        total_s=(request.done_ns - request.sent_ns) / NS_PER_S,
        prefill_s=request.spans.prefill_ns / NS_PER_S,
        decode_s=request.decode_ns / NS_PER_S,
        bits=request.wire_bytes * byte_scale * 8,
        links=links,
        needs_link=request.arm == "remote-hit",
        prompt_tokens=request.prompt_tokens,
        output_tokens=len(request.output_ids),
    )


def mean_phases(requests: Iterable[Request], links: int, byte_scale: int) -> Phases | None:
    """Mean of those that have an answer, all of one arm; None of nothing."""
    rows = [phases_of(row, links, byte_scale) for row in requests if row.timed]
    if not rows:
        return None
    count = len(rows)
    return Phases(
        total_s=sum(row.total_s for row in rows) / count,
        prefill_s=sum(row.prefill_s for row in rows) / count,
        decode_s=sum(row.decode_s for row in rows) / count,
        bits=sum(row.bits for row in rows) / count,
        links=links,
        needs_link=rows[0].needs_link,
        prompt_tokens=sum(row.prompt_tokens for row in rows) / count,
        output_tokens=sum(row.output_tokens for row in rows) / count,
    )


def gpu_parts(phases: Phases, numbers: Constants) -> tuple[float, float, float]:
    """Joules of the GPU: what it would have drawn in that time anyway, and on top of that for
    prefill and for decode."""
    idle_w = numbers.idle_w.value
    return (
        idle_w * phases.total_s,
        (numbers.prefill_w.value - idle_w) * phases.prefill_s,
        (numbers.decode_w.value - idle_w) * phases.decode_s,
    )


def joules(phases: Phases, numbers: Constants) -> Joules:
    """The proxy of GPU and link."""
    gpu_j = sum(gpu_parts(phases, numbers))
    lit_s = phases.total_s * phases.links if phases.needs_link else 0.0
    optics_j = ENDS_PER_LINK * numbers.end_w.value * lit_s
    transfer_j = numbers.transfer_pj_per_bit.value * 1e-12 * phases.bits * phases.links
    return Joules(gpu_j, optics_j, transfer_j)


def request_joules(request: Request, numbers: Constants, links: int, byte_scale: int) -> Joules:
    """The proxy of one timed request that is ``links`` links away from its KV."""
    return joules(phases_of(request, links, byte_scale), numbers)


def joules_by_request(run_dir: Path) -> dict[str, Joules]:
    """The proxy of every timed request of a run folder, by request id.

    Raises:
        RunError: broken or missing records.
    """
    scenario = read_back(run_dir / "scenario.yaml")
    manifest, _ = load_manifest(run_dir)
    numbers = constants(scenario.energy, manifest.profile)
    workload, cells = scenario.workload, scenario.cells()
    links = [len(path_links(cell.topology, workload.provider, workload.asker)) for cell in cells]
    scales = [cell.scenario.deployment.byte_scale for cell in cells]
    return {
        row.request_id: request_joules(row, numbers, links[row.cell], scales[row.cell])
        for row in load_requests(run_dir)
        if row.timed
    }


def mean_joules(parts: Sequence[Joules]) -> Joules | None:
    """Mean of each part; None of nothing."""
    if not parts:
        return None
    count = len(parts)
    return Joules(
        sum(part.gpu_j for part in parts) / count,
        sum(part.optics_j for part in parts) / count,
        sum(part.transfer_j for part in parts) / count,
    )
