"""What every fault is: something done to a running lab, and how it is seen that it was done.

A fault never trusts that it worked because it asked for it. ``inject`` returns when it has
*seen* the fault from outside the system under test (a probe on the link, the process table, a
refused connection), and so does ``heal``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from geokv.errors import FaultError
from geokv.scenario.timeline import Event

if TYPE_CHECKING:
    from geokv.coordinator.drill.stage import Stage

E = TypeVar("E", bound=Event)


class Evidence(NamedTuple):
    """When it was seen to be so, and how.

    Attributes:
        t_ns: the moment on the run's clock; not that of asking for it.
        seen: one sentence for people.
        data: what was measured; JSON-ready.
    """

    t_ns: int
    seen: str
    data: dict[str, Any]


class Fault(ABC, Generic[E]):
    """One event of a timeline, as something that can be done.

    ``E`` is the class of that event. A fault of a user's own gets a ``ForeignFault``: ``link``,
    ``site`` and ``tenant`` as written in the timeline, and ``options``, which is its ``with``.

    Attributes:
        event: what the timeline says of it.
        stage: the running lab, its sites, and the history.
        kind: of its event; the module is called the same, with ``_``.
        deadline_s: at which the runner gives up waiting for evidence, of ``inject`` and of
            ``heal`` each.
        target: what it hits, for records: a link, a site, a tenant.
        alone: whether two of its kind on one target would undo each other, because healing
            gives back what was before.
    """

    kind: ClassVar[str]
    deadline_s: float = 5.0
    alone: ClassVar[bool] = False

    def __init__(self, event: E, stage: Stage) -> None:
        self.event = event
        self.stage = stage

    @property
    def target(self) -> str:
        """The link, site or tenant of its event."""
        for key in ("link", "site", "tenant", "to"):
            named = getattr(self.event, key, None)
            if named:
                return str(named)
        return ""

    @property
    def claims(self) -> frozenset[str]:
        """What no other fault may hold while this one lasts, in words."""
        return frozenset({f"{self.kind} of {self.target}"} if self.alone else ())

    @property
    def can_heal(self) -> bool:
        """Whether it is something that can be taken back."""
        return type(self).heal is not Fault.heal

    async def prepare(self) -> None:
        """What must be done before the first request is sent; most need nothing.

        Raises:
            GeokvError: it cannot be done, so that the fault cannot fire.
        """

    @abstractmethod
    async def inject(self) -> Evidence:
        """Do it, and return once it is seen to have taken effect.

        Raises:
            GeokvError: it did not fire; the message says why, and no more.
        """

    async def heal(self) -> Evidence:
        """Take it back, and return once that is seen. What has healed by itself returns at once.

        Raises:
            GeokvError: it did not heal; the message says why, and no more.
        """
        raise FaultError(f"{self.kind} is nothing that heals")
