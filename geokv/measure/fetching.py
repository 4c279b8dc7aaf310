"""What the fetches of an arm took, beside what they must take on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geokv.measure.closed_form import fetch_ns
from geokv.measure.percentile import percentile
from geokv.measure.records import PathRecord, Request
from geokv.scenario.model import Scenario
from geokv.scenario.sharing import mixed_fleet
from geokv.units import NS_PER_S

_HEADERS = 0.02
"""Headers and token ids of records are at most such a share of the payload at sensible sizes."""


@dataclass(frozen=True)
class Fetching:
    """Of the requests that fetched; medians are nearest rank and need not be of one request.

    Attributes:
        requests: how many those are.
        time_ns: first request to last byte of the last chunk (span ``fetch``).
        chunks: got over links.
        goodput_bps: payload moved over ``time_ns``, as of the deployment the run stands for
            (S times what was moved).
        round_trips: of time in which the line carried none of the payload:
            (time - bytes / payload rate) / RTT. None on a link without one, and where that is no
            more than what headers may take, which are not in it.
        predicted_ns: the closed form for the median request; None with losses, closed congestion
            windows, rate caps, converted chunks or another engine than ours, which are not in it.
    """

    requests: int
    time_ns: int
    chunks: int
    goodput_bps: float
    round_trips: float | None
    predicted_ns: int | None

    @property
    def off(self) -> float | None:
        """Measured over predicted, less one."""
        return self.time_ns / self.predicted_ns - 1 if self.predicted_ns else None


def reduce_fetching(
    scenario: Scenario, rows: Sequence[Request], path: PathRecord
) -> Fetching | None:
    """Reduce the measured requests of one arm; None when none of them fetched anything.

    Args:
        scenario: of the cell.
        path: between provider and asker, as planned.
    """
    fetches = [
        (row.spans.fetch_ns, row.wire_bytes, row.chunks_remote)
        for row in rows
        if row.timed and row.spans is not None and row.chunks_remote and row.spans.fetch_ns > 0
    ]
    if not fetches:
        return None
    time_ns = percentile([one[0] for one in fetches], 0.5)
    wire_bytes = percentile([one[1] for one in fetches], 0.5)
    chunks = percentile([one[2] for one in fetches], 0.5)
    scale = scenario.deployment.byte_scale
    send_ns = wire_bytes * 8 * NS_PER_S / path.payload_rate_bps
    return Fetching(
        requests=len(fetches),
        time_ns=time_ns,
        chunks=chunks,
        goodput_bps=wire_bytes * scale * 8 * NS_PER_S / time_ns,
        round_trips=_round_trips(time_ns - send_ns, send_ns, path.rtt_ns),
        predicted_ns=_predicted(scenario, chunks, wire_bytes, path),
    )


def _round_trips(waited_ns: float, send_ns: float, rtt_ns: int) -> float | None:
    return waited_ns / rtt_ns if rtt_ns and waited_ns > _HEADERS * send_ns else None


def _predicted(scenario: Scenario, chunks: int, wire_bytes: int, path: PathRecord) -> int | None:
    links = scenario.topology.links.values()
    lossy = any(link.loss or link.loss_model for link in links)
    forgets = scenario.workload.idle > 0 and any(link.idle_restart for link in links)
    substrate = scenario.cache.substrate
    other = substrate.capped or substrate.kind != "tcp" or mixed_fleet(scenario)
    if lossy or forgets or other or not substrate.warm:
        return None
    layered = scenario.cache.overlap and scenario.deployment.layer_groups > 1
    pieces = chunks * (scenario.deployment.layer_groups if layered else 1)
    return fetch_ns(
        pieces, wire_bytes / pieces, path.rtt_ns, path.payload_rate_bps, substrate.window
    )
