"""However a process with a VM ends, nothing is left: no process, and after clean no folder."""

from __future__ import annotations

import importlib.metadata
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import alive, descendants, wait_gone

from geokv.paths import CHECKOUT
from geokv.vm.kernel import kernel_path
from geokv.vm.place import Place

NOBODY = 65534

PARENT = """
import signal, sys
from geokv.vm import Job
from geokv.vm.place import in_vm
from geokv.vm.supervise import run_job
signal.signal(signal.SIGINT, signal.default_int_handler)
script = "id -u; sleep 0.2; echo up; sleep 600"
run_job(in_vm("wall"), Job(("/bin/sh", "-c", script), 512 * 2**20),
        lambda line: print(line, flush=True))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A world of its own for one user: temporary files, journals."""
    folder = Path(tempfile.mkdtemp(prefix="geokv-t-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def environment(home: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "TMPDIR": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "PYTHONPATH": str(CHECKOUT),
        **more,
    }


def start_parent(home: Path) -> tuple[subprocess.Popen[str], set[int]]:
    """A process with a running VM, and the ids of all the VM's processes."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
        start_new_session=True,
    )
    assert parent.stdout is not None
    for line in parent.stdout:
        if line == "up\n":
            break
    else:
        pytest.fail(parent.communicate()[1])
    vm = descendants(parent.pid)
    assert len(vm) >= 2, "a VM is a kernel and at least one process of its guest"
    return parent, vm


def folders(home: Path) -> list[Path]:
    base = home / f"geokv-{os.getuid()}"
    return [path for path in base.iterdir() if path.is_dir()]


def clean(home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "geokv", "clean"],
        capture_output=True,
        text=True,
        env=environment(home),
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_interrupt_leaves_nothing(wall: Place, home: Path) -> None:
    parent, vm = start_parent(home)
    assert len(folders(home)) == 1
    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    wait_gone(vm)
    assert folders(home) == []
    assert clean(home) == "nothing to remove\n"


def test_kill_leaves_no_process_and_clean_removes_the_folder(wall: Place, home: Path) -> None:
    parent, vm = start_parent(home)
    [folder] = folders(home)
    assert clean(home) == "nothing to remove\n", "a running VM's folder is not clean's"
    assert alive(vm) == vm
    parent.kill()
    parent.communicate(timeout=20)
    wait_gone(vm)
    assert clean(home) == f"removed folder {folder}\n1 things removed\n"
    assert folders(home) == []
    assert clean(home) == "nothing to remove\n"


def test_vm_leaves_no_memory_file(wall: Place, home: Path) -> None:
    before = set(Path("/dev/shm").iterdir())
    parent, vm = start_parent(home)
    files = {path for path in set(Path("/dev/shm").iterdir()) - before if "vm_file" in path.name}
    parent.kill()
    parent.communicate(timeout=20)
    wait_gone(vm)
    assert files == set(), "the memory file is unlinked as soon as it is open"


BECOME = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def interpreter_for_everybody(home: Path) -> Path:
    """This interpreter, or the system's with this one's packages: one that others may run."""
    system = Path(f"/usr/bin/python3.{sys.version_info.minor}")
    candidates = [Path(sys.executable)]
    if system.exists():
        subprocess.run([system, "-m", "venv", "--without-pip", home / "venv"], check=True)
        [packages] = (home / "venv").glob("lib/*/site-packages")
        ours = Path(importlib.metadata.distribution("pydantic").locate_file(""))
        (packages / "ours.pth").write_text(f"{ours}\n")
        candidates.append(home / "venv" / "bin" / "python")
    for path in candidates:
        # Through a shell: setpriv itself may still be able to start what others may not.
        script = f"exec {path} -c 'import geokv.vm, json'"
        tried = subprocess.run(
            [*BECOME, "sh", "-c", script], env=environment(home), capture_output=True, text=True
        )
        if tried.returncode == 0:
            return path
    pytest.skip(f"no interpreter that an ordinary user may run: {tried.stderr[-200:]}")


def test_runs_as_an_ordinary_user(wall: Place, home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    kernel = home / "cache" / kernel_path().relative_to(kernel_path().parents[3])
    kernel.parent.mkdir(parents=True)
    shutil.copy2(kernel_path(), kernel)
    for path in [home, *home.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    python = interpreter_for_everybody(home)
    script = PARENT.replace("; sleep 600", "; touch /root/x").replace('"wall"', '"virtual"')
    done = subprocess.run(
        [*BECOME, python, "-c", script],
        env=environment(home, XDG_CACHE_HOME=str(home / "cache"), HOME=str(home)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    # Root inside, and outside no more than whoever started it.
    assert done.stdout == "0\nup\n"
    assert not Path("/root/x").exists()
    left = [path for path in (home / f"geokv-{NOBODY}").iterdir() if path.is_dir()]
    assert left == []


def test_somebody_elses_folder_is_refused(wall: Place, home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder that belongs to somebody else")
    (home / "geokv-0").mkdir()
    os.chown(home / "geokv-0", NOBODY, NOBODY)
    done = subprocess.run(
        [sys.executable, "-c", PARENT],
        capture_output=True,
        text=True,
        env=environment(home),
        timeout=60,
    )
    assert "geokv-0 belongs to somebody else" in done.stderr


class Terminal:
    """A person at a terminal, waiting for what they expect to see."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""

    def expect(self, pattern: str, seconds: float = 30) -> None:
        ends = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self._ours], [], [], max(0, ends - time.monotonic()))
            assert ready, f"waited for {pattern!r}, saw: {self.seen[-2000:]}"
            self.seen += os.read(self._ours, 4096).decode(errors="replace")

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self._ours, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_interactive_shell(wall: Place, home: Path, clock: str) -> None:
    command = [sys.executable, "-m", "geokv", "kernel", "shell", "--clock", clock]
    terminal = Terminal(command, environment(home, TERM="dumb"))
    try:
        terminal.expect(r"[#$] $")
        terminal.type("echo $((6 * 7)) $(uname -r)\n")
        terminal.expect(r"42 6\.\d+.*geokv")
        terminal.type("sleep 1; exit 3\n")
        assert terminal.process.wait(timeout=20) == 3
    finally:
        terminal.close()
    assert folders(home) == []
