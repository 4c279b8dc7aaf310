"""The shared KV cache of a scenario: ownership and substrate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from geokv.config import Strict
from geokv.scenario.directory import Directory
from geokv.scenario.membership import Membership
from geokv.scenario.purge import Purge
from geokv.scenario.replication import Replication
from geokv.scenario.substrate import Substrate
from geokv.scenario.tiers import Tiers


class CacheSettings(Strict):
    """How the shared cache of every site is made: directory, transport, tiers, and extras."""

    directory: Directory
    substrate: Substrate = Field(default_factory=Substrate)
    tiers: Tiers = Field(default_factory=Tiers)
    replication: Replication | None = None
    """Copies of what a site computes at others; none when unset."""
    overlap: bool = False
    """Fetch layer group by layer group (``deployment.layer_groups``) and compute on the first
    while the last are on the wire."""
    exact: bool = True
    """Never use KV that lost something on its way (a lossy codec, a narrower type)."""
    membership: Membership | None = None
    """Heartbeats; without them a site that does not answer costs a deadline first."""
    purge: Purge | None = None
    """Tenants can be purged: what is purged is used nowhere after a bound, even by a site
    that cannot be reached. The directory's site numbers purges."""
    mixed: Literal["refuse", "convert"] = "refuse"
    """What a site does about a peer whose chunks lie differently."""
