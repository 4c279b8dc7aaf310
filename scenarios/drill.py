"""A drill with a fault of one's own: a digger cuts every fibre of one trench at once.

Links that look independent often share a duct. The triangle has two ways between any two sites;
with both links of b in one trench it has none.

    python scenarios/drill.py
"""

from __future__ import annotations

from geokv import Evidence, Fault, Scenario, now_ns, run
from geokv.coordinator.faults.light import go_dark, light_up


class Digger(Fault):
    """Seen by the carriers of each link, and by frames that do not come through."""

    kind = "digger"

    async def inject(self) -> Evidence:
        links = self.event.options["links"]
        for link in links:
            await go_dark(self.stage.lab, link)
        return Evidence(now_ns(), f"{' and '.join(links)} are dark", {"links": links})

    async def heal(self) -> Evidence:
        links = self.event.options["links"]
        for link in links:
            await light_up(self.stage.lab, link)
        return Evidence(now_ns(), f"{' and '.join(links)} carry light again", {"links": links})


if __name__ == "__main__":
    dig = {
        "fault": Digger,
        "name": "trench",
        "at": "1010ms",
        "for": "500ms",
        "with": {"links": ["a-b", "b-c"]},
        "expect": {"detected_within": "175ms", "first_good_within": "200ms"},
    }
    scenario = Scenario("link-cut").with_(name="trench", topology="triangle", timeline=[dig])
    result = run(scenario)
    print(result.verdict, *result.reasons, sep="\n  ")
    print(result.requests.groupby(["cell", "fate"])["ttft_ns"].agg(["count", "max"]))
