"""Carry jobs to their end: pass their output on, notice when they are stuck, leave nothing.

One thread watches all VMs of a run. A VM that prints nothing for its watchdog time is
ended, and the error shows the last line it printed and the tail of its console.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence

from geokv.errors import RunEnded, VmError
from geokv.vm.boot import RAISE_MAPPINGS, link_into
from geokv.vm.bytecode import compile_package
from geokv.vm.job import Job, Outcome
from geokv.vm.place import Place
from geokv.vm.slot import take_slot

_LOOK_EVERY_S = 0.05
#: What User-Mode Linux says when it kills a process for want of mappings (a SIGSEGV without
#: a handler's chance: Python leaves no trace of it).
_TOO_MANY_MAPPINGS = "vm.max_map_count has been reached"
_TAIL_LINES = 15


def run_jobs(
    place: Place,
    jobs: Sequence[Job],
    on_line: Callable[[int, str], None],
    on_start: Callable[[int, int], None] = lambda index, process: None,
    give_up: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Run jobs at the same time, each in a VM of its own, until all have ended.

    Args:
        on_line: called with the job's index and each whole line of its output.
        on_start: called with the job's index and the first process of its VM.
        give_up: asked all the time whether to end them all.

    Raises:
        VmError: a VM did not boot, was stuck, ran out of memory or died; the others
            are ended too. KeyboardInterrupt and other exceptions also end them all.
        RunEnded: because of ``give_up``.
    """
    running: list[_Running] = []
    compile_package()
    try:
        for index, job in enumerate(jobs):
            running.append(_Running(place, job, index))
            on_start(index, running[-1].process_id)
        while any(one.outcome is None for one in running):
            if give_up():
                raise RunEnded("the run was ended before it was over")
            for one in running:
                one.look(on_line)
            time.sleep(_LOOK_EVERY_S)
        return [one.outcome for one in running if one.outcome is not None]
    finally:
        for one in running:
            one.end()


def run_job(place: Place, job: Job, on_line: Callable[[str], None] = print) -> Outcome:
    """One job; see ``run_jobs``. An interactive job has the terminal instead of ``on_line``."""
    return run_jobs(place, [job], lambda _, line: on_line(line))[0]


class _Running:
    def __init__(self, place: Place, job: Job, index: int) -> None:
        self.job = job
        self.index = index
        self.outcome: Outcome | None = None
        self._slot = take_slot()
        self._path = self._slot.folder
        self._stdout_at = 0
        self._last_line = "nothing"
        self._last_progress = time.monotonic()
        self._console = (self._path / "console").open("wb")
        try:
            self._process = self._start(place)
        except BaseException:
            self._console.close()
            self._slot.close()
            raise

    def _start(self, place: Place) -> subprocess.Popen[bytes]:
        self.job.write(self._path)
        link_into(self._path)
        terminal = None if self.job.interactive else subprocess.DEVNULL
        console = None if self.job.interactive else self._console
        return subprocess.Popen(
            place.command(self.job, self._path, self._slot.processor),
            stdin=terminal,
            stdout=console,
            stderr=subprocess.STDOUT if console else None,
            cwd=self._path,
            env=place.environment(),
            start_new_session=not self.job.interactive,
        )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def look(self, on_line: Callable[[int, str], None]) -> None:
        """Pass new output on; settle the outcome if the process has ended."""
        if self.outcome is not None:
            return
        ended = self._process.poll() is not None
        for line in self._new_lines(to_the_end=ended):
            self._last_line = line
            self._last_progress = time.monotonic()
            on_line(self.index, line)
        if ended:
            self.outcome = self._settle()
        elif not self.job.interactive:
            silent_s = time.monotonic() - self._last_progress
            if silent_s > self.job.watchdog_s:
                raise VmError(
                    f"the VM made no progress for {silent_s:.0f} s and was ended; "
                    f"its last line was: {self._last_line}\n{self._tail()}",
                    "a busy loop hangs virtual time; a slow machine needs a longer vm.watchdog",
                )

    def end(self) -> None:
        """Stop the VM if it still runs and give everything back."""
        if self._process.poll() is None:
            if self.job.interactive:
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._console.close()
        self._slot.close()

    def _settle(self) -> Outcome:
        path = self._path / "status"
        status = int(path.read_text()) if path.exists() else None
        console = self._read("console")
        if status != 0 and _TOO_MANY_MAPPINGS in console:
            raise VmError(
                "a process in the VM was killed: the host maps its memory piece by piece, and "
                f"would not map another one (vm.max_map_count)\n{self._tail()}",
                f"{RAISE_MAPPINGS}, or run less in one VM",
            )
        if status is not None:
            return Outcome(status, self._read("stderr"))
        tail = self._tail()
        if "out of memory" in console.lower():
            raise VmError(f"the VM ran out of memory\n{tail}", "raise vm.memory in the scenario")
        raise VmError(
            f"the VM ended before its job did; its last line was: {self._last_line}\n{tail}",
            "geokv doctor checks what a VM needs",
        )

    def _new_lines(self, to_the_end: bool) -> list[str]:
        path = self._path / "stdout"
        if not path.exists():
            return []
        with path.open("rb") as stream:
            stream.seek(self._stdout_at)
            data = stream.read()
        whole = data if to_the_end else data[: data.rfind(b"\n") + 1]
        self._stdout_at += len(whole)
        return whole.decode(errors="replace").splitlines()

    def _read(self, name: str) -> str:
        path = self._path / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _tail(self) -> str:
        console = self._read("console").splitlines()
        # What a kernel says after its panic are addresses; the cause stands before it.
        panic = next((i for i, line in enumerate(console) if "Kernel panic" in line), None)
        lines = [*self._read("stderr").splitlines(), *console[: panic and panic + 1]]
        return "\n".join(f"  | {line}" for line in lines[-_TAIL_LINES:])
