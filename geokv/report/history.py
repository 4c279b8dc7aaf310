"""``history.jsonl``: what every site did to every block, in one order of time."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from geokv.errors import RunError
from geokv.report.disk import saving

_OF_A_CELL = re.compile(r"history-(\d+)-.+")
"""Of a drill, whose cells have files of their own. Names of sites begin with a letter."""


class _Stamped(msgspec.Struct, frozen=True):
    """The one field of an event that merging needs."""

    t_ns: int


def merge_history(run_dir: Path) -> Path | None:
    """Merge ``records/history-*.jsonl`` by time into ``history.jsonl``.

    Lines are kept byte for byte; events of one instant keep the order of their files'
    names, then of their lines. None, and no file, when no site kept a history. Of a drill
    the order is that of cells first, and each line begins with the number of its ``cell``.

    Raises:
        RunError: a line that is no event, named ``file:line``, or a full disk.
        ConfigError: the folder cannot be written to.
    """
    files = sorted((run_dir / "records").glob("history-*.jsonl"))
    if not files:
        return None
    decoder = msgspec.json.Decoder(_Stamped)
    events: list[tuple[int, int, bytes]] = []
    for path in files:
        match = _OF_A_CELL.fullmatch(path.stem)
        cell = int(match[1]) if match else -1
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                t_ns = decoder.decode(line).t_ns
            except msgspec.MsgspecError as error:
                raise RunError(f"{path}:{number}: not an event ({error})") from None
            if match:
                line = b'{"cell":%d,' % cell + line.lstrip().removeprefix(b"{")
            events.append((cell, t_ns, line))
    events.sort(key=lambda event: event[:2])
    target = run_dir / "history.jsonl"
    with saving(target), target.open("wb") as out:
        out.writelines(line + b"\n" for _, _, line in events)
    return target
