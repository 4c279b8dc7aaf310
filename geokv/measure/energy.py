"""Energy proxy per request: published watts times measured phases. Nothing is metered.

    E_gpu      = P_idle·T + (P_prefill - P_idle)·t_prefill + (P_decode - P_idle)·t_decode
    E_optics   = 2 ends · P_end · T · links        only when the request needs the link
    E_transfer = e_bit · bits · links

T runs from sending to the last token. The optics draw their watts lit or idle, so a
request that needs the link pays for it for all of its T; requests of the other arms
need no link. Bits are those of the deployment the run stands for (wire bytes times S).
Recomputing at the serving site is paid by the request, computing the prefix at the
providing site is not: it was done before, for another request. Form after Splitwise
(phases draw differently) and a fixed-plus-marginal model of the link.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from geokv.errors import RunError
from geokv.measure.records import Request, load_manifest, load_requests
from geokv.scenario import path_links, read_back
from geokv.scenario.energy import GPU_DEFAULTS, Constant, Energy
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
        return self.gpu_j + self.optics_j + self.transfer_j


@dataclass(frozen=True)
class Constants:
    """Every number the proxy uses, with range and source."""

    idle_w: Constant
    prefill_w: Constant
    decode_w: Constant
    end_w: Constant
    transfer_pj_per_bit: Constant

    def shown(self) -> dict[str, dict[str, Any]]:
        return {name: getattr(self, name).model_dump() for name in self.__dataclass_fields__}


def constants(energy: Energy, profile: Mapping[str, Any]) -> Constants:
    """The scenario's own numbers, else the GPU profile's watts, else published ones.

    Args:
        profile: the manifest's; its ``watts`` maps idle, prefill and decode to numbers,
            ``range`` to words such as ``idle 60-80, prefill 600-700`` and ``source``.

    Raises:
        RunError: a wattage in the profile that is not one.
    """
    watts = profile.get("watts") or {}
    gpu = {}
    for name, default in GPU_DEFAULTS.items():
        phase = name.removesuffix("_w")
        own = getattr(energy.gpu, name)
        said = watts.get(phase, watts.get(name))
        gpu[name] = own or (default if said is None else _from_profile(phase, said, watts))
    return Constants(
        **gpu, end_w=energy.link.end_w, transfer_pj_per_bit=energy.link.transfer_pj_per_bit
    )


def request_joules(request: Request, numbers: Constants, links: int, byte_scale: int) -> Joules:
    """The proxy of one timed request that is ``links`` links away from its KV."""
    assert request.spans is not None
    total_s = (request.done_ns - request.sent_ns) / NS_PER_S
    prefill_s = request.spans.prefill_ns / NS_PER_S
    decode_s = request.decode_ns / NS_PER_S
    idle_w = numbers.idle_w.value
    gpu_j = (
        idle_w * total_s
        + (numbers.prefill_w.value - idle_w) * prefill_s
        + (numbers.decode_w.value - idle_w) * decode_s
    )
    needs_link = request.arm == "remote-hit"
    optics_j = ENDS_PER_LINK * numbers.end_w.value * total_s * links if needs_link else 0.0
    bits = request.wire_bytes * byte_scale * 8
    transfer_j = numbers.transfer_pj_per_bit.value * 1e-12 * bits * links
    return Joules(gpu_j, optics_j, transfer_j)


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


def _from_profile(phase: str, value: Any, watts: Mapping[str, Any]) -> Constant:
    found = re.search(rf"\b{phase} ([0-9.]+)-([0-9.]+)", str(watts.get("range", "")))
    low, high = (float(found[1]), float(found[2])) if found else (value, value)
    source = f"GPU profile: {watts.get('source', 'no source given')}"
    try:
        return Constant.model_validate({"value": value, "low": low, "high": high, "source": source})
    except ValidationError as error:
        raise RunError(
            f"manifest.json: profile.watts.{phase}: not a wattage ({error.errors()[0]['msg']})"
        ) from None
