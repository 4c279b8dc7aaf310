"""Being told to end. SIGTERM and SIGHUP are to a command what Ctrl-C is: an exception in its main
thread, so that whoever has started something puts it away. The exit code says which it was."""

from __future__ import annotations

import asyncio
import os
import signal
from types import FrameType

_QUIET = (signal.SIGTERM, signal.SIGHUP)
_OUTPUTS = (1, 2)


class Stopped(KeyboardInterrupt):
    """Somebody told this process to end, by another signal than Ctrl-C's.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


def code_of(error: KeyboardInterrupt) -> int:
    """The exit code that a shell shows for it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (error.signal if isinstance(error, Stopped) else signal.SIGINT)


def stop_of(code: int) -> KeyboardInterrupt:
    """What ``code_of`` was asked of."""
    return KeyboardInterrupt() if code == 128 + signal.SIGINT else Stopped(code - 128)


def name_of(error: KeyboardInterrupt) -> str:
    """What stopped it, as people call it."""
    return error.signal.name if isinstance(error, Stopped) else "Ctrl-C"


def take_signals() -> None:
    """From now on SIGTERM and SIGHUP raise ``Stopped`` in the main thread, once.

    What is ignored already, as SIGHUP is under ``nohup``, stays so. Another one while things are
    put away changes nothing, since putting away has its limits by itself. Where a terminal is
    gone, what would be written to it goes nowhere, so that nothing breaks half-way.
    """
    terminals = [number for number in _OUTPUTS if _is_terminal(number)]

    def told(number: int, _: FrameType | None) -> None:
        for one in _QUIET:
            if signal.getsignal(one) is told:
                # A handler and not SIG_IGN, which what is started from here would inherit.
                signal.signal(one, lambda *_: None)
        _let_go(terminals)
        raise Stopped(number)

    for one in _QUIET:
        if signal.getsignal(one) is signal.SIG_DFL:
            signal.signal(one, told)


def set_when_told(event: asyncio.Event) -> None:
    """In a running event loop: Ctrl-C, SIGTERM and SIGHUP set it; SIGHUP not under ``nohup``."""
    terminals = [number for number in _OUTPUTS if _is_terminal(number)]
    loop = asyncio.get_running_loop()

    def told() -> None:
        _let_go(terminals)
        event.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, told)


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False


def _let_go(terminals: list[int]) -> None:
    gone = [number for number in terminals if not _is_terminal(number)]
    if gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in gone:
            os.dup2(nowhere, number)
        os.close(nowhere)
