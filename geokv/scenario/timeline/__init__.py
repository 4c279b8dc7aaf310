"""The timeline of a drill: seeded faults, one model per kind, grouped by what they hit."""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from geokv.foreign import is_reference
from geokv.scenario.timeline.congestion import Background, Incast, TenantLoad
from geokv.scenario.timeline.directory import (
    DirectoryKill,
    DirectoryRestart,
    EventDuplicate,
    EventLoss,
    EventReorder,
)
from geokv.scenario.timeline.event import Condition, Event, Lasting, Recovery
from geokv.scenario.timeline.foreign import ForeignFault
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

OurEvent = Annotated[
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
_ours: TypeAdapter[Event] = TypeAdapter(OurEvent)


def _by_kind(data: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Decide by how the fault is named, so that only what is wrong there is said of it."""
    if isinstance(data, ForeignFault):
        return handler(data)
    named = data.get("fault") if isinstance(data, dict) else None
    if isinstance(named, str) and is_reference(named):
        return ForeignFault.model_validate(data)
    return _ours.validate_python(data)


AnyEvent = Annotated[OurEvent | ForeignFault, WrapValidator(_by_kind)]


def read_event(data: dict[str, Any]) -> Event:
    """An event from the mapping that a record keeps of it.

    Raises:
        pydantic.ValidationError: it is none.
    """
    return _ours.validate_python(data)


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
    "ForeignFault",
    "Incast",
    "KeyRevoke",
    "Lasting",
    "LinkCut",
    "LinkDegrade",
    "LinkFlap",
    "LinkOneWayCut",
    "LostCompletion",
    "MemoryPressure",
    "OurEvent",
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
    "read_event",
]
