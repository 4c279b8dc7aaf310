"""Entering a network namespace, for the calling thread only."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

from geokv.errors import LabError

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def in_netns(path: str) -> Iterator[None]:
    """Run the block in the namespace at ``path``, then return to the one before.

    Sockets opened inside stay in that namespace for life; processes started inside live in it.
    Other threads are not moved. Nothing may be awaited inside: the event loop's other tasks
    would run in the namespace too.

    Raises:
        LabError: the namespace is gone or may not be entered.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter_path(path)
        try:
            yield
        finally:
            _setns(before, "the namespace before")
    finally:
        os.close(before)


def enter_netns(path: str) -> None:
    """Move the calling thread (a fresh process's only one) into the namespace for good.

    Raises:
        LabError: the namespace is gone or may not be entered.
    """
    _enter_path(path)


def new_netns() -> int:
    """A descriptor of a new, empty namespace; it lives as long as something holds it open.

    Nothing is left to clean up when the holder dies, however it dies.

    Raises:
        LabError: this user may not make namespaces.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.unshare(_CLONE_NEWNET) < 0:
            reason = os.strerror(ctypes.get_errno())
            raise LabError(
                f"no network namespace could be made ({reason})",
                "run as root, or in the VM with --clock virtual",
            )
        try:
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            _setns(before, "the namespace before")
    finally:
        os.close(before)


def _enter_path(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LabError(f"namespace {path} cannot be opened ({error.strerror})") from None
    try:
        _setns(descriptor, path)
    finally:
        os.close(descriptor)


def _setns(descriptor: int, name: str) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) < 0:
        reason = os.strerror(ctypes.get_errno())
        raise LabError(f"namespace {name} cannot be entered ({reason})")
