"""Removing what a dead run left behind: exactly its journal's entries."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geokv.errors import LabError
from geokv.lab.journal import ENTRY_VARIABLE, Contents, boot_id, read_journal, start_time
from geokv.lab.mounts import unmount
from geokv.lab.netlink import Netlink, NetlinkRefused

NETNS_FOLDER = Path("/run/netns")
_END_DEADLINE_S = 5.0


def clean(path: Path) -> list[str]:
    """Remove what a dead run's journal lists, newest first, then the journal.

    Returns:
        One line per thing that was there and is gone now. A second call returns nothing.

    Raises:
        LabError: the owner is alive, or something could not be removed (the journal stays).
    """
    if not path.exists():
        return []
    if path.stat().st_size == 0:
        path.unlink()
        return []
    contents = read_journal(path)
    if contents.owner.alive:
        raise LabError(
            f"run {contents.run} is still going (process {contents.owner.pid})",
            "end it first; it cleans up after itself",
        )
    same_boot = contents.owner.boot == boot_id()
    removed, problems = [], []
    for number, entry in sorted(contents.entries.items(), reverse=True):
        if not same_boot and entry["kind"] != "folder":
            continue  # namespaces, processes and mounts ended with their kernel
        try:
            if _REMOVERS[entry["kind"]](contents, number, entry):
                removed.append(f"{entry['kind']} {_name(entry)}")
        except (LabError, OSError) as error:
            problems.append(f"{entry['kind']} {_name(entry)}: {error}")
    if problems:
        raise LabError(
            f"run {contents.run} is not wholly cleaned:\n" + "\n".join(problems),
            "run geokv clean as the user that started it (root if it was root)",
        )
    path.unlink(missing_ok=True)
    return removed


def _name(entry: dict[str, Any]) -> str:
    return str(entry.get("name") or entry.get("path") or entry.get("pid") or "without a pid")


def _own_name(contents: Contents, name: str) -> str:
    if contents.run not in name:
        raise LabError(f"{name} does not carry the run id {contents.run}; left alone")
    return name


def _process(contents: Contents, number: int, entry: dict[str, Any]) -> bool:
    if "pid" in entry:
        return _end(entry["pid"], entry["start"])
    marker = f"{ENTRY_VARIABLE}={contents.run}:{number}".encode()
    ended = False
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        started = start_time(pid)
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile, or not ours to read
        if marker in variables and started is not None and pid != os.getpid():
            ended |= _end(pid, started)
    return ended


def _end(pid: int, started: int | None) -> bool:
    """Kill the process of that pid and start time; the descriptor pins it against reuse."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if started is None or start_time(pid) != started:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(_END_DEADLINE_S * 1000):
            raise LabError(f"process {pid} does not end")
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def _mount(contents: Contents, _: int, entry: dict[str, Any]) -> bool:
    return unmount(_own_name(contents, entry["path"]))


def _netns(contents: Contents, _: int, entry: dict[str, Any]) -> bool:
    path = NETNS_FOLDER / _own_name(contents, entry["name"])
    if not path.exists():
        return False
    unmount(str(path))
    path.unlink(missing_ok=True)
    return True


def _interface(contents: Contents, _: int, entry: dict[str, Any]) -> bool:
    with Netlink() as link:
        try:
            link.delete_link(_own_name(contents, entry["name"]))
        except NetlinkRefused as error:
            if error.code != errno.ENODEV:
                raise
            return False
    return True


def _folder(contents: Contents, _: int, entry: dict[str, Any]) -> bool:
    path = Path(_own_name(contents, entry["path"]))
    if path.is_symlink() or not path.is_dir():
        return False
    shutil.rmtree(path)
    return True


def _sysctl(_: Contents, __: int, entry: dict[str, Any]) -> bool:
    path = Path(entry["path"])
    with contextlib.suppress(FileNotFoundError):
        if path.read_text().split() == str(entry["new"]).split():
            path.write_text(str(entry["old"]))
            return True
    return False


_REMOVERS: dict[str, Callable[[Contents, int, dict[str, Any]], bool]] = {
    "process": _process,
    "mount": _mount,
    "netns": _netns,
    "interface": _interface,
    "folder": _folder,
    "sysctl": _sysctl,
}
