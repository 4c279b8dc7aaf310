"""What ``geokv run`` says while it runs: on a terminal, in a pipe, not at all, and when stopped."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from cli import SMALL, Geokv, Run

COLUMNS = 70
SHOW, HIDE = "\x1b[?25h", "\x1b[?25l"
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class OnTerminal:
    """The command with a terminal for standard error and a pipe for standard output."""

    def __init__(self, geokv: Geokv, *args: str | Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        environment = geokv.environment() | {"TERM": "xterm-256color"}
        del environment["COLUMNS"]
        self.process = subprocess.Popen(
            geokv.command(*args),
            cwd=geokv.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        self.seen = ""

    def read(self, until: str, deadline_s: float) -> bool:
        """Take what it shows until ``until`` is among it, or its end; whether it was seen."""
        end_s = time.monotonic() + deadline_s
        while until not in self.seen and time.monotonic() < end_s:
            if select.select([self._ours], [], [], 0.2)[0]:
                try:
                    data = os.read(self._ours, 65536)
                except OSError:
                    # So a terminal of Linux ends.
                    return until in self.seen
                self.seen += data.decode(errors="replace")
        return until in self.seen

    def close(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self._ours)


def test_on_a_terminal_it_lives_and_leaves_the_result_alone(
    geokv: Geokv, vm: None, tmp_path: Path
) -> None:
    run = OnTerminal(geokv, "run", "smoke", "--json", *SMALL, "--out", tmp_path / "run")
    try:
        run.read("never shown", 240)
        stdout = run.process.stdout
        assert stdout is not None
        summary = json.loads(stdout.read())
        assert run.process.wait(30) == 0
    finally:
        run.close()
    assert summary["verdict"] == "pass"
    plain = _CODES.sub("", run.seen)
    for said in ("smoke", "/6 requests", "/2 cells", "a-b 50 km", "s virtual", "judging"):
        assert said in plain, plain
    assert max(len(line.rstrip()) for line in plain.splitlines()) <= COLUMNS
    assert run.seen.count(HIDE) == run.seen.count(SHOW) == 1
    # It takes its own lines away: the cursor ends where it began.
    last = run.seen[run.seen.index(SHOW) :]
    assert "requests" not in _CODES.sub("", last)


def test_in_a_pipe_there_are_lines_and_no_codes(smoke: Run) -> None:
    lines = smoke.done.stderr.splitlines()
    assert "\x1b" not in smoke.done.stderr
    assert re.fullmatch(r" *\d+\.\d s  cell 1 of 2: a-b 0 km", lines[1]), lines
    assert re.fullmatch(
        r" *\d+\.\d s  cell 2 of 2: a-b 50 km · 6 of 12 requests, about .* left", lines[2]
    )
    assert lines[-1].endswith("judging and drawing")
    assert "judging" not in smoke.done.stdout


def test_quiet_is_quiet_but_not_about_errors(geokv: Geokv, vm: None, tmp_path: Path) -> None:
    wrong = geokv("run", "smoke", "--quiet", "--set", "links.a-b.km=-3")
    assert wrong.returncode == 2 and "links.a-b.km" in wrong.stderr
    done = geokv("run", "smoke", "-q", *SMALL, "--out", tmp_path / "run", timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert "verdict: pass" in done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_being_told_to_end_gives_the_terminal_back_and_leaves_no_vm(
    geokv: Geokv, vm: None, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "stopped"
    run = OnTerminal(geokv, "run", "smoke", "--out", out)
    try:
        assert run.read("recompute", 200), run.seen
        run.process.send_signal(number)
        name = "Ctrl-C" if number is signal.SIGINT else "SIGTERM"
        assert run.read(f"stopped by {name}", 60), run.seen
        assert run.process.wait(30) == 128 + number
        stdout = run.process.stdout
        assert stdout is not None and stdout.read() == ""
    finally:
        run.close()
    assert "Traceback" not in run.seen and "Aborted" not in run.seen
    assert run.seen.count(HIDE) == run.seen.count(SHOW) == 1
    assert (out / "log.txt").stat().st_size > 0
    last = json.loads((out / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("failed", 128 + number)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in running.stdout
