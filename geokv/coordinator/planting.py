"""Negative controls: KV that is wrong on purpose, in the place of the right one.

A run in which every answer is right proves little as long as nobody has seen a wrong one. A
control arm asks the arm's questions over a prefix whose KV was exchanged or damaged in the
asker's DRAM tier *after* every check, so that nothing can notice before the answer does.
"""

from __future__ import annotations

from typing import Any

from geokv.coordinator.asking import Asker
from geokv.coordinator.fleet import Fleet, SiteHandle
from geokv.coordinator.prompts import Prompts
from geokv.coordinator.tracing import Setup
from geokv.errors import RunError
from geokv.scenario import Scenario
from geokv.scenario.tenants import OTHER_TENANT, TENANT

CONTROLS = ("control-foreign", "control-corrupt")
_FIRST_NUMBER = 8
"""Of the requests that prepare controls; those of the other arms have smaller ones."""


class Planter:
    """Prepares the asker of a control arm, and clears up after it."""

    def __init__(
        self, scenario: Scenario, fleet: Fleet, asker: Asker, prompts: Prompts, setup: Setup
    ) -> None:
        self._setup = setup
        self._scenario = scenario
        self._fleet = fleet
        self._asker = asker
        self._prompts = prompts

    def plant(self, cell: int, arm: str) -> str:
        """Bring the prefix here, make its KV wrong, and leave only that to be read.

        Returns:
            What the site's own integrity check says of it: it names the first wrong chunk.

        Raises:
            RunError: nothing was planted.
        """
        site = self._site
        name = self._scenario.workload.asker
        number = _FIRST_NUMBER + 2 * CONTROLS.index(arm)
        self.clear()
        self._setup.reuse(name, "remote")
        self._asker.prepare(cell, number, name)
        body: dict[str, Any] = {"tenant": TENANT, "tokens": self._prompts.prefix}
        if arm == "control-foreign":
            self._setup.settle(name)
            self._setup.reuse(name, "local")
            self._asker.prepare_foreign(cell, number + 1, name)
            body["donor"] = {"tenant": OTHER_TENANT, "tokens": self._prompts.foreign()}
        self._setup.settle(name)
        planted = site.post("/plant", **body)["chunks"]
        said = str(site.get("/integrity")["integrity"])
        if not planted or said == "ok":
            raise RunError(f"{arm}: {planted} chunks were planted, the site's check says {said!r}")
        # The device still has the right blocks; what is read next comes from the tier.
        site.post("/drop", tiers=["device"])
        self._setup.reuse(name, "local")
        return said

    def clear(self) -> None:
        """Forget everything cached at the asker."""
        name = self._scenario.workload.asker
        self._setup.settle(name)
        self._setup.forget(name)

    @property
    def _site(self) -> SiteHandle:
        return self._fleet.sites[self._scenario.workload.asker]
