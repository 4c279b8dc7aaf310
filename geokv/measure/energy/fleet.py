"""Energy of a drill: what all its sites drew from the first request to the last answer.

Requests of a drill run side by side and share their GPU, so joules are not theirs one by one.
Of each site is known when it computed for anybody: the union of the times its answered requests
were in prefill, and of those they were in decode. A step of a batch that does both counts as
prefill.

    E_site  = P_prefill · |prefill| + P_decode · |decode less prefill| + P_idle · rest + P_host · T
    E_links = 2 ends · (P_end + P_switch) · T · links + e_bit · bits
    E       = PUE · (Σ sites + links)

Grams are what the kWh of E come to at the one carbon intensity that all sites of a drill have, of
operation alone (``account.py`` says what is left out).

T is the same for all. Links are lit whether used or cut. What a request computed that got no
answer is not known; such a site counts as idle then, and so the joules are at least these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from geokv.measure.checker.exchanges import Exchange
from geokv.measure.energy.account import J_PER_KWH
from geokv.measure.energy.constants import Constants
from geokv.measure.energy.request import ENDS_PER_LINK
from geokv.units import NS_PER_S

Window = tuple[int, int]
_SPANS = {"prefill_ns", "first_byte_ns"}


@dataclass(frozen=True)
class Fleet:
    """What one cell's sites did, in seconds summed over sites."""

    duration_s: float
    sites: int
    links: int
    prefill_s: float
    decode_s: float
    """Of times in which nobody was in prefill."""
    bits: float
    """Fetched by answered requests, of the deployment the run stands for, times the links they
    crossed where nothing is cut."""
    answered: int
    output_tokens: int

    @property
    def idle_s(self) -> float:
        """In which sites neither prefilled nor decoded."""
        return self.duration_s * self.sites - self.prefill_s - self.decode_s

    def parts_j(self, numbers: Constants) -> dict[str, float]:
        """Joules by part, before PUE."""
        lit_s = ENDS_PER_LINK * self.duration_s * self.links
        return {
            "gpu_idle": numbers.idle_w.value * self.idle_s,
            "gpu_prefill": numbers.prefill_w.value * self.prefill_s,
            "gpu_decode": numbers.decode_w.value * self.decode_s,
            "host": numbers.host_w.value * self.duration_s * self.sites,
            "optics": numbers.end_w.value * lit_s,
            "switch": numbers.switch_w.value * lit_s,
            "transfer": numbers.transfer_pj_per_bit.value * 1e-12 * self.bits,
        }

    def energy_j(self, numbers: Constants) -> float:
        """At the meters of all sites."""
        return numbers.pue.value * sum(self.parts_j(numbers).values())

    def energy_consumed_kwh(self, numbers: Constants) -> float:
        """``energy_j`` in kWh."""
        return self.energy_j(numbers) / J_PER_KWH

    def emissions_g(self, numbers: Constants) -> float:
        """Grams of CO2 equivalent."""
        return self.energy_consumed_kwh(numbers) * numbers.carbon_intensity_g_per_kwh.value


def fleet(
    exchanges: Iterable[Exchange], sites: int, links: int, hops: dict[str, int], byte_scale: int
) -> Fleet | None:
    """Of the answered requests of one cell; None where there are none.

    Args:
        hops: site → links between it and the nearest site that provides.
    """
    rows = [
        one for one in exchanges if one.ok and (one.answers[0].get("spans") or {}).keys() >= _SPANS
    ]
    if not rows:
        return None
    prefills: dict[str, list[Window]] = {}
    decodes: dict[str, list[Window]] = {}
    bits = 0.0
    for one in rows:
        answer, spans = one.answers[0], one.answers[0]["spans"]
        prefilled_ns = int(answer["first_ns"]) - int(spans["first_byte_ns"])
        began_ns = prefilled_ns - int(spans["prefill_ns"])
        prefills.setdefault(one.site, []).append((began_ns, prefilled_ns))
        decodes.setdefault(one.site, []).append((prefilled_ns, int(answer["done_ns"])))
        bits += int(answer.get("wire_bytes") or 0) * byte_scale * 8 * hops.get(one.site, 1)
    prefill_ns = sum(length(windows) for windows in prefills.values())
    busy_ns = sum(length([*prefills[site], *windows]) for site, windows in decodes.items())
    start_ns = min(one.sent_ns for one in rows)
    end_ns = max(int(one.answers[0]["done_ns"]) for one in rows)
    return Fleet(
        duration_s=(end_ns - start_ns) / NS_PER_S,
        sites=sites,
        links=links,
        prefill_s=prefill_ns / NS_PER_S,
        decode_s=(busy_ns - prefill_ns) / NS_PER_S,
        bits=bits,
        answered=len(rows),
        output_tokens=sum(len(one.answers[0].get("output_ids") or ()) for one in rows),
    )


def length(windows: Sequence[Window]) -> int:
    """ns that at least one of some windows covers."""
    total, reached = 0, None
    for start, end in sorted(windows):
        if reached is None or start > reached:
            total += max(0, end - start)
            reached = max(start, end)
        elif end > reached:
            total += end - reached
            reached = end
    return total
