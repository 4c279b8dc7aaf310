"""Signals that tell a command to end are exceptions in it, each with the exit code a shell has."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import textwrap

import pytest

from geokv.ending import Stopped, code_of, name_of, stop_of
from geokv.paths import CHECKOUT


def run(code: str, number: int, **more: object) -> subprocess.CompletedProcess[str]:
    """A program that is sent a signal once it has said ``ready``."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True,
        cwd=CHECKOUT, **more,  # type: ignore[call-overload]
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        stdout, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess([], process.returncode, stdout, "")


WAITS = """
    import os, signal, sys, time
    from geokv.ending import code_of, name_of, take_signals
    take_signals()
    try:
        print("ready", flush=True)
        time.sleep(20)
    except KeyboardInterrupt as error:
        # A second one while things are put away.
        if code_of(error) != 130:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
        print(name_of(error), flush=True)
        sys.exit(code_of(error))
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_is_an_exception_and_a_second_one_nothing(
    number: signal.Signals, code: int
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = run(WAITS, number)
    finally:
        signal.signal(signal.SIGINT, before)
    name = "Ctrl-C" if number is signal.SIGINT else number.name
    assert (done.returncode, done.stdout) == (code, f"{name}\n")


def test_what_nohup_ignores_stays_ignored() -> None:
    code = """
        import signal, time
        from geokv.ending import take_signals
        take_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        print("ready", flush=True)
        time.sleep(0.3)
        print("goes on")
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        done = run(code, signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (done.returncode, done.stdout) == (0, "goes on\n")


@pytest.mark.parametrize("ignored", [False, True])
def test_a_server_hears_them_too(ignored: bool) -> None:
    code = """
        import asyncio
        from geokv.ending import set_when_told
        async def main():
            told = asyncio.Event()
            set_when_told(told)
            print("ready", flush=True)
            try:
                await asyncio.wait_for(told.wait(), 0.5)
                print("told")
            except TimeoutError:
                print("nothing")
        asyncio.run(main())
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        assert run(code, signal.SIGHUP).stdout == ("nothing\n" if ignored else "told\n")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_without_its_terminal_a_command_still_puts_things_away() -> None:
    ours, theirs = pty.openpty()
    code = WAITS.replace(
        "print(name_of(error), flush=True)",
        "print('away', flush=True); print('said to nobody', file=sys.stderr, flush=True)",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=CHECKOUT,
    )  # fmt: skip
    os.close(theirs)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    stdout, _ = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (129, "away\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_whatever_command_is_stopped_says_so_and_exits_with_its_code(
    number: signal.Signals,
) -> None:
    code = """
        import sys, time
        import geokv.cli
        @geokv.cli.app.command("wait")
        def wait():
            print("ready", flush=True)
            time.sleep(20)
        sys.argv = ["geokv", "wait"]
        sys.stderr = sys.stdout
        geokv.cli.main()
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = run(code, number)
    finally:
        signal.signal(signal.SIGINT, before)
    name = "Ctrl-C" if number is signal.SIGINT else "SIGTERM"
    assert (done.returncode, done.stdout) == (128 + number, f"stopped by {name}\n")


def test_codes_and_what_they_are_of_agree() -> None:
    for error in (KeyboardInterrupt(), Stopped(signal.SIGTERM), Stopped(signal.SIGHUP)):
        again = stop_of(code_of(error))
        assert (type(again), name_of(again)) == (type(error), name_of(error))
