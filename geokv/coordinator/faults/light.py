"""The light of a link, taken and given back, and how both are seen."""

from __future__ import annotations

import asyncio

from geokv.clock import now_ns
from geokv.coordinator.faults.fault import Evidence
from geokv.errors import FaultError, LabError
from geokv.lab.build import Lab
from geokv.lab.outage import carriers, cut, restore
from geokv.lab.sight import LinkSight

_SEEN_WITHIN_S = 2.0


async def go_dark(lab: Lab, link: str) -> Evidence:
    """Cut a link; seen by the carrier of both sites, and by frames that do not come through.

    Raises:
        FaultError: it was dark before.
        LabError: it still carries.
    """
    if not all(carriers(lab, link)):
        raise FaultError(f"link {link} has no light to lose")
    cut(lab, link)
    try:
        return await _see_dark(lab, link, now_ns())
    except BaseException:  # also its deadline: nobody will know that there is something to heal
        restore(lab, link)
        raise


async def _see_dark(lab: Lab, link: str, dark_ns: int) -> Evidence:
    lit = carriers(lab, link)
    if any(lit):
        raise LabError(f"link {link} was cut, and a site still has its carrier")
    with LinkSight(lab, link) as sight:
        await asyncio.gather(*(sight.until_shut(end, deadline_s=_SEEN_WITHIN_S) for end in (0, 1)))
        return Evidence(
            dark_ns,
            f"neither end of {link} has a carrier, and {sight.packets} frames were lost",
            {"carrier": list(lit), "probes": sight.packets, "probe_bytes": sight.sent_bytes},
        )


async def light_up(lab: Lab, link: str) -> Evidence:
    """Give a link its light back; seen by both carriers and a frame each way.

    Raises:
        LabError: nothing comes through.
    """
    restore(lab, link)
    with LinkSight(lab, link) as sight:
        # Both at once: after a long way or a queue there the other would be looked at late.
        crossings = await asyncio.gather(
            *(sight.until_open(end, deadline_s=_SEEN_WITHIN_S) for end in (0, 1))
        )
        lit = carriers(lab, link)
        return Evidence(
            max(crossing.sent_ns for crossing in crossings),
            f"both ends of {link} have a carrier, and a frame crossed each way",
            {"carrier": list(lit), "probes": sight.packets, "probe_bytes": sight.sent_bytes},
        )
