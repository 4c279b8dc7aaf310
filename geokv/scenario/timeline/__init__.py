"""The timeline of a drill: seeded faults, one model per kind, grouped by what they hit."""

from typing import Annotated

from pydantic import Field

from geokv.scenario.timeline.congestion import Background, Incast, TenantLoad
from geokv.scenario.timeline.directory import (
    DirectoryKill,
    DirectoryRestart,
    EventDuplicate,
    EventLoss,
    EventReorder,
)
from geokv.scenario.timeline.event import Condition, Event, Lasting, Recovery
from geokv.scenario.timeline.links import (
    LinkCut,
    LinkDegrade,
    LinkFlap,
    LinkOneWayCut,
    Partition,
    PathSwitch,
    SilentDrop,
)
from geokv.scenario.timeline.sites import (
    BitRot,
    DiskFull,
    DiskSlow,
    MemoryPressure,
    SiteFreeze,
    SiteKill,
    SiteRestart,
    SlowGpu,
    StoreOutage,
)
from geokv.scenario.timeline.tenants import EvictionStorm, KeyRevoke, Purge
from geokv.scenario.timeline.wire import CorruptChunk, LostCompletion

AnyEvent = Annotated[
    LinkCut
    | LinkOneWayCut
    | LinkFlap
    | LinkDegrade
    | Partition
    | SilentDrop
    | PathSwitch
    | Background
    | Incast
    | TenantLoad
    | SiteKill
    | SiteFreeze
    | SiteRestart
    | SlowGpu
    | MemoryPressure
    | DiskFull
    | DiskSlow
    | BitRot
    | StoreOutage
    | CorruptChunk
    | LostCompletion
    | DirectoryKill
    | DirectoryRestart
    | EventLoss
    | EventDuplicate
    | EventReorder
    | Purge
    | KeyRevoke
    | EvictionStorm,
    Field(discriminator="fault"),
]

__all__ = [
    "AnyEvent",
    "Background",
    "BitRot",
    "Condition",
    "CorruptChunk",
    "DirectoryKill",
    "DirectoryRestart",
    "DiskFull",
    "DiskSlow",
    "Event",
    "EventDuplicate",
    "EventLoss",
    "EventReorder",
    "EvictionStorm",
    "Incast",
    "KeyRevoke",
    "Lasting",
    "LinkCut",
    "LinkDegrade",
    "LinkFlap",
    "LinkOneWayCut",
    "LostCompletion",
    "MemoryPressure",
    "Partition",
    "PathSwitch",
    "Purge",
    "Recovery",
    "SilentDrop",
    "SiteFreeze",
    "SiteKill",
    "SiteRestart",
    "SlowGpu",
    "StoreOutage",
    "TenantLoad",
]
