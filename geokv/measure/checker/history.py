"""A history as checkers read it: the events of one cell, in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from geokv.errors import RunError

Event = dict[str, Any]
"""``t_ns, site, op`` and what the operation adds."""
_DECODER = msgspec.json.Decoder(dict[str, Any])


class History:
    """The events of one cell; those of one instant in the order of their files and lines.

    Args:
        cell: its number, or None where events do not name one (measurement runs).
    """

    def __init__(self, events: Iterable[Event], cell: int | None = None, label: str = "") -> None:
        self.events: Sequence[Event] = list(events)
        self.cell = cell
        self.label = label
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, event in enumerate(self.events):
            self._places[event["op"]].append(place)

    def of(self, *ops: str) -> Iterator[Event]:
        """All events of these operations, in order."""
        places: list[int] = []
        for op in ops:
            places += self._places.get(op, ())
        if len(ops) > 1:
            places.sort()
        return (self.events[place] for place in places)

    def has(self, *ops: str) -> bool:
        """Whether there is an event of any of these operations."""
        return any(op in self._places for op in ops)

    def count(self, *ops: str) -> int:
        """How many events of these operations there are."""
        return sum(len(self._places.get(op, ())) for op in ops)

    @property
    def drill(self) -> bool:
        """Is it that of a drill, with requests, answers and what was seen from outside?"""
        return self.has("drill-begin")

    @property
    def end_ns(self) -> int | None:
        """When the stream of a drill had ended; None if it never did."""
        ends = list(self.of("drill-end"))
        return ends[-1]["t_ns"] if ends else None


def handed_over(event: Event) -> bool:
    """Did bytes of a tier, or of another site, come to an engine or leave for a peer? What an
    engine had on its device already is nobody's copy but its own."""
    if event["op"] == "use":
        return bool(event["source"] != "device")
    return event["op"] == "serve" and not event.get("cause")


def held_keys(event: Event) -> set[str]:
    """All keys of a ``held`` event, which has a list of them for every tier."""
    tiers = [keys for keys in event.values() if isinstance(keys, list)]
    return {key for keys in tiers for key in keys}


def load_histories(run_dir: Path) -> list[History]:
    """A history per cell of a drill; of a measurement run one per VM, whose clocks differ.

    Raises:
        RunError: there is none, or a line is no event.
    """
    whole = run_dir / "history.jsonl"
    if not whole.is_file():
        raise RunError(
            f"{whole}: there is no history",
            "give the folder of a finished run, as results/link-cut/<stamp>-<hash>",
        )
    by_cell: dict[int | None, list[Event]] = defaultdict(list)
    for event in read_events(whole):
        by_cell[event.get("cell")].append(event)
    cells = sorted(cell for cell in by_cell if cell is not None)
    if cells and None not in by_cell:
        return [History(by_cell[cell], cell, _label(by_cell[cell])) for cell in cells]
    parts = sorted({_part(path) for path in _site_files(run_dir)})
    if len(parts) < 2:
        return [History(by_cell[None])]
    return [_part_history(run_dir, part) for part in parts]


def load_parts(run_dir: Path) -> list[History]:
    """Histories of a measurement run's VMs, by number; empty where sites wrote none. They need
    not have been merged yet.

    Raises:
        RunError: a line is no event.
    """
    parts = sorted({_part(path) for path in _site_files(run_dir)}, key=int)
    return [_part_history(run_dir, part) for part in parts]


def read_events(path: Path) -> Iterator[Event]:
    """Events of one file, line by line.

    Raises:
        RunError: a line that is none, named ``file:line``.
    """
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                event = _DECODER.decode(line)
                if not isinstance(event["t_ns"], int) or not isinstance(event["op"], str):
                    raise TypeError("t_ns is a number and op a word")
            except (msgspec.MsgspecError, KeyError, TypeError) as error:
                raise RunError(f"{path}:{number}: not an event ({error})") from None
            event.setdefault("site", "")
            yield event


def _label(events: Sequence[Event]) -> str:
    begun = next((event for event in events if event["op"] == "drill-begin"), {})
    return str(begun.get("label", ""))


def _site_files(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "records").glob("history-*-*.jsonl"))


def _part(path: Path) -> str:
    return path.stem.rsplit("-", 1)[1]


def _part_history(run_dir: Path, part: str) -> History:
    events: list[Event] = []
    for path in _site_files(run_dir):
        if _part(path) == part:
            events += read_events(path)
    events.sort(key=lambda event: int(event["t_ns"]))
    return History(events, label=f"part {part}")
