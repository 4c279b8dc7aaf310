"""The guest's side of a job: run the command, leave its exit status, power off.

Inside the VM this is process 1 (``netem/kernel/init`` execs it), so it also reaps
orphans. Natively it is an ordinary child. Output goes to files in the job's folder,
which the host reads as they grow: the console stays free for the kernel's messages.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import subprocess
import sys
import termios
import time
import traceback
from pathlib import Path

from geokv.paths import CHECKOUT, models_folder
from geokv.vm.job import Job

_BEAT_S = 0.01
_RB_POWER_OFF = 0x4321FEDC
_MOST_FILES = 65_536
_NOT_STARTED = 127
"""As a shell says it."""


def guest_environment(job: Job) -> dict[str, str]:
    """Variables that make runs repeatable and page faults rare (about 15 µs each in the VM)."""
    keep_memory = str(1 << 32)
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:"
        "/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        "HOME": os.environ.get("HOME", "/tmp"),
        "GEOKV_MODELS": str(models_folder()),
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": keep_memory,
        "MALLOC_TRIM_THRESHOLD_": keep_memory,
        "MALLOC_TOP_PAD_": str(64 << 20),
        **job.env,
    }


def run_job(folder: Path) -> int:
    """Run the job of ``folder`` to its end; returns and records its exit status."""
    job = Job.read(folder / "job.json")
    _wait_for_the_beat()
    argv = [sys.executable if job.argv[0] == "python" else job.argv[0], *job.argv[1:]]
    if job.interactive:
        status = _run_on_terminal(argv, job)
    else:
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as errors:
            try:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    cwd=CHECKOUT,
                    env=guest_environment(job),
                )
                status = _reap_until(child.pid)
            except OSError as error:
                errors.write(f"{argv[0]}: cannot be started ({error.strerror})\n".encode())
                status = _NOT_STARTED
    (folder / "status").write_text(str(status), encoding="utf-8")
    return status


def _wait_for_the_beat() -> None:
    """Start every job at the same moment of the guest's clock: each folder on the way to a file
    costs its first visitor four readings of the clock, and how deep this checkout, its Python and
    the job's folder lie is nothing that a run should know."""
    time.sleep(_BEAT_S - time.monotonic() % _BEAT_S)


def _run_on_terminal(argv: list[str], job: Job) -> int:
    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 1)

    terminal = os.open("/dev/tty0", os.O_RDWR | os.O_NOCTTY)
    child = subprocess.Popen(
        argv,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=CHECKOUT,
        env=guest_environment(job),
        preexec_fn=take_terminal,
    )
    return _reap_until(child.pid)


def _reap_until(pid: int) -> int:
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def _raise_file_limit() -> None:
    """As many open files as a lab of hundreds of sites may need.

    With the usual 1024 it ends at some 64 sites, and not always in those words: Python's
    ``pty`` reports the first file too many as "out of pty devices".
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if os.getpid() == 1:
        hard = max(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _MOST_FILES)), hard))


def _prepare_kernel() -> None:
    """Settings of the guest's first namespace that no later namespace can set."""
    # An out-of-memory kill would take one site and leave a run that looks slow.
    Path("/proc/sys/vm/panic_on_oom").write_text("2", encoding="ascii")


def main() -> None:
    """``python -m geokv.vm.guest FOLDER``: process 1 of the VM, or what stands for it."""
    folder = Path(sys.argv[1])
    if os.getpid() != 1:
        _raise_file_limit()
        sys.exit(run_job(folder))
    try:
        _raise_file_limit()
        _prepare_kernel()
        run_job(folder)
    except BaseException:
        # Process 1 has nobody to print this for it after the power is off.
        traceback.print_exc()
    finally:
        os.sync()
        ctypes.CDLL(None).reboot(_RB_POWER_OFF)


if __name__ == "__main__":
    main()
