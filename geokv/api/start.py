"""A run that goes on while Python does something else, and that can be told things."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from geokv.api.html import facts, page
from geokv.api.naming import plain
from geokv.api.run import Progress, Run, carry
from geokv.api.scenario import Scenario
from geokv.errors import FaultError, GeokvError, RunEnded, RunError
from geokv.live.follow import Follower, read_events
from geokv.live.tell import tell
from geokv.live.words import parse_fault
from geokv.report.progress.plan import plan_of
from geokv.report.progress.tally import Tally

BEGIN_S = 120.0
"""Real seconds until a run has its folder, at most: a scenario is checked in less."""
END_S = 60.0
"""Real seconds until a run that is ended has stopped its VMs; its last tables may be written."""


class Running:
    """A run that was started, in a thread of this process; ``geokv.start`` makes it.

    As a context manager it ends a run that still goes on when its block is left, and so does the
    end of the program: no VM is left behind.

    Attributes:
        scenario: what runs.
        folder: the run folder.
    """

    folder: Path

    def __init__(
        self, scenario: Scenario, out: str | Path | None, progress: bool | Progress,
        root: str | Path, pace: str | float | None, live: bool | None,
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self._tally = Tally(plan_of(scenario.checked))
        self._result: Run | None = None
        self._error: BaseException | None = None
        self._begun = threading.Event()
        self._over = threading.Event()
        self._give_up = threading.Event()
        how = {"pace": pace, "live": live, "give_up": self._give_up.is_set}
        # A daemon, so that a program whose end does not wait for it can end.
        self._thread = threading.Thread(
            target=self._carry, args=(out, progress, root, how), name="geokv run", daemon=True
        )
        atexit.register(self._at_exit)
        self._thread.start()
        if not self._begun.wait(BEGIN_S):
            self._give_up.set()
            raise RunError(f"{scenario.name} has not begun within {BEGIN_S:g} s")
        if self._error is not None:
            raise self._error

    def _carry(
        self, out: str | Path | None, progress: bool | Progress, root: str | Path,
        how: dict[str, Any],
    ) -> None:  # fmt: skip
        try:
            self._result = carry(self.scenario, out, progress, root, self._take, **how)
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()
            self._begun.set()
            atexit.unregister(self._at_exit)

    def _take(self, step: dict[str, Any]) -> None:
        self._tally.take(step)
        if step["event"] == "folder":
            self.folder = Path(step["path"])
            self._begun.set()

    @property
    def is_going_on(self) -> bool:
        """Whether it has not come to its end yet."""
        return not self._over.is_set()

    def inject(self, fault: str | Mapping[str, Any], within_s: float = 300.0) -> str:
        """Make a fault now, and wait until it is seen to have taken effect.

        Args:
            fault: a line, as ``geokv live inject`` takes it (``"link-cut a-b for 5s"``), or an
                event as in a timeline (``{"fault": "link-cut", "link": "a-b"}``).
            within_s: real seconds to wait; a run that still boots answers when it has.

        Returns:
            Its name, for ``heal``.

        Raises:
            ConfigError: there is no such fault, site or link, or the run takes no commands: it is
                a measurement run, or was started without ``live``.
            FaultError: it did not fire.
            RunError: the run is over, or the fault was not seen in time.
        """
        event = parse_fault(fault) if isinstance(fault, str) else plain(fault, {})
        return self._tell(within_s, "inject", event=event)

    def heal(self, name: str, within_s: float = 300.0) -> None:
        """Take back a fault that lasts, also one of the scenario, and wait until that is seen.

        Raises:
            ConfigError: no fault of that name lasts.
            FaultError: it did not heal.
            RunError: the run is over, or it was not seen in time.
        """
        self._tell(within_s, "heal", name=name)

    def stop(self, within_s: float = 300.0) -> None:
        """Send no more requests; the drill heals, looks at its books and is judged. Returns when
        it has heard that; ``wait`` waits for the verdict.

        Raises:
            ConfigError: the run takes no commands.
            RunError: the run is over, or does not answer in time.
        """
        self._tell(within_s, "stop")

    def _tell(self, within_s: float, do: str, **said: Any) -> str:
        event: dict[str, Any] = {}
        for event in tell(self.folder, within_s, do, **said):
            if event["event"] == "fault" and event["phase"].startswith("did-not"):
                phase = event["phase"].replace("-", " ")
                raise FaultError(f"{event['name']} {phase}: {event['said']}")
        return str(event.get("name", ""))

    def events(self) -> list[dict[str, Any]]:
        """Everything it has told so far, oldest first (docs/live.md#events says what there is)."""
        return read_events(self.folder)

    def follow(self, within_s: float) -> Iterator[dict[str, Any]]:
        """Its events as they come, from the first one on, until its end.

        Args:
            within_s: real seconds after which it ends at the latest.
        """
        return Follower(self.folder).until(within_s)

    def wait(self, within_s: float = 3600.0) -> Run:
        """Its results, when it has come to its verdict.

        Args:
            within_s: real seconds to wait.

        Raises:
            RunError: it still goes on then.
            RunEnded: it was ended.
            GeokvError: it broke; the run folder keeps ``log.txt``.
        """
        if not self._over.wait(within_s):
            raise RunError(
                f"{self.folder}: the run still goes on after {within_s:g} s",
                "wait longer, have a drill come to its end with stop(), or end it with end()",
            )
        if self._result is None:
            assert self._error is not None, "it ends with one of the two"
            raise self._error
        return self._result

    def end(self) -> None:
        """End it where it stands, as Ctrl-C does: no verdict. Nothing happens when it is over.

        Raises:
            RunError: it is still there after a minute.
        """
        self._give_up.set()
        if not self._over.wait(END_S):
            raise RunError(f"{self.folder}: the run does not end")

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def _at_exit(self) -> None:
        self._give_up.set()
        self._over.wait(END_S)

    def __repr__(self) -> str:
        return f"<Running {self.scenario.name}: {self._state()}, {self.folder}>"

    def _repr_html_(self) -> str:
        """For notebooks: how far it is; of a run that is over its verdict and table."""
        if self._result is not None:
            return self._result._repr_html_()
        tally = self._tally
        rows = {
            "run": self._state(),
            "now": tally.said,
            "cells": f"{tally.cells_done} of {len(tally.plan.cells)}",
            "requests": f"{tally.asked:,} of {tally.plan.asked:,}",
            "its clock": f"{max((vm.own_s for vm in [*tally.vms.values()]), default=0.0):.1f} s",
            "faults": ", ".join(self._faults()) or "none",
            "folder": str(self.folder),
        }
        return page(self.scenario.title, self.scenario.question, facts(rows))

    def _state(self) -> str:
        if self._result is not None:
            return self._result.verdict
        if isinstance(self._error, RunEnded):
            return "ended"
        if self._error is not None:
            said = self._error.message if isinstance(self._error, GeokvError) else self._error
            return f"broken: {said}"
        return "goes on"

    def _faults(self) -> list[str]:
        """Name and latest phase of every fault."""
        phases = {one["name"]: one["phase"] for one in self.events() if one["event"] == "fault"}
        return [f"{name} {phase.replace('-', ' ')}" for name, phase in phases.items()]


def start(
    scenario: Scenario | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    pace: str | float | None = None,
    live: bool | None = None,
    progress: bool | Progress = False,
    root: str | Path = "results",
) -> Running:
    """Start a run and go on at once.

    Args:
        scenario: a ``Scenario``, or what makes one.
        out: the run folder to make, new or empty; ``root/NAME/STAMP-HASH`` when not given.
        pace: virtual seconds per real second, at most, as of ``run``.
        live: samples among the events, and commands to a drill; when not given, where there is
            a pace.
        progress: as of ``run``, but that nothing is shown unless it is asked for. A function is
            called in the run's thread.
        root: where run folders are made.

    Raises:
        ConfigError: the scenario, ``out`` or ``pace`` cannot be used; nothing is made.
        GeokvError: this machine cannot run it.

    Examples:
        >>> from geokv import Scenario, start
        >>> drill = Scenario("live").with_({"workload.requests": 200})
        >>> with start(drill, pace="5x") as run:  # doctest: +SKIP
        ...     cut = run.inject("link-cut a-b for 30s")
        ...     run.heal(cut)
        ...     run.stop()
        ...     result = run.wait(within_s=300)
    """
    wanted = scenario if isinstance(scenario, Scenario) else Scenario(scenario)
    return Running(wanted, out, progress, root, pace, live)
