"""What a job in the VM may rely on: status, output, clocks, repeatability, limits."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from geokv.errors import ConfigError, RunEnded, VmError
from geokv.paths import CHECKOUT
from geokv.vm import Job, Place
from geokv.vm.slot import take_slot
from geokv.vm.supervise import run_job, run_jobs

SMALL = 512 * 2**20


def sh(script: str, **more: object) -> Job:
    return Job(("/bin/sh", "-c", script), SMALL, **more)  # type: ignore[arg-type]


def py(script: str, **more: object) -> Job:
    return Job(("python", "-c", script), SMALL, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_exit_status_and_errors_come_out(virtual: Place, script: str, status: int) -> None:
    outcome = run_job(virtual, sh(f"echo to the side >&2; {script}"), lambda _: None)
    assert (outcome.status, outcome.errors) == (status, "to the side\n")


def test_lines_come_as_they_are_written(wall: Place) -> None:
    seen: list[tuple[float, str]] = []
    job = sh("echo one; sleep 1; printf 'half '; sleep 0.3; echo line; printf end")
    run_job(wall, job, lambda line: seen.append((time.monotonic(), line)))
    assert [line for _, line in seen] == ["one", "half line", "end"]
    assert 1.0 < seen[1][0] - seen[0][0] < 3


def test_virtual_hour_is_exact_and_free(virtual: Place) -> None:
    script = (
        "import time; a = time.monotonic_ns(); time.sleep(3600); print(time.monotonic_ns() - a)"
    )
    lines: list[str] = []
    started = time.monotonic()
    run_job(virtual, py(script), lines.append)
    real_s = time.monotonic() - started
    assert 3600e9 <= int(lines[0]) < 3600e9 + 1e6
    assert real_s < 2 + 6, real_s  # and a boot
    again = time.monotonic()
    run_job(virtual, py("print(1)"), lines.append)
    assert real_s - (time.monotonic() - again) < 2


def test_a_process_that_asks_for_an_io_uring_is_refused_and_may_fork(virtual: Place) -> None:
    # Where one is mapped, a fork leaves "BUG: Bad page map" in the guest's log, then a panic.
    script = (
        "import ctypes, mmap, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "ring = libc.syscall(425, 8, ctypes.create_string_buffer(120))\n"  # io_uring_setup
        "print(ring, os.strerror(ctypes.get_errno()), flush=True)\n"
        "memory = mmap.mmap(ring, 4096) if ring >= 0 else bytearray(4096)\n"
        "memory[0] = memory[1]\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    memory[0] = memory[1]\n"
        "    if os.fork(): os.wait()\n"
        "    os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    lines: list[str] = []
    run_job(virtual, py(script), lines.append)
    assert lines == ["-1 Operation not permitted", "3"]


def test_wall_clock_vm_keeps_real_time(wall: Place) -> None:
    script = (
        "import time; time.sleep(0.2); print('a', flush=True); a = time.monotonic();"
        "time.sleep(1); print(time.monotonic() - a, flush=True)"
    )
    seen: list[tuple[float, str]] = []
    run_job(wall, py(script), lambda line: seen.append((time.monotonic(), line)))
    inside_s = float(seen[1][1])
    outside_s = seen[1][0] - seen[0][0]
    assert 1.0 <= inside_s < 1.5
    assert outside_s == pytest.approx(inside_s, abs=0.3)


def test_same_program_sees_the_same_clock_and_the_same_randomness(virtual: Place) -> None:
    script = (
        "import os, time, random, uuid\n"
        "print(time.monotonic_ns(), time.time_ns(), os.urandom(16).hex(), uuid.uuid4(),"
        " random.random(), os.getpid(), hash('x'), id(object()))\n"
        "time.sleep(0.0012345)\n"
        "print(time.monotonic_ns(), os.urandom(8).hex())"
    )

    def run() -> list[str]:
        lines: list[str] = []
        run_job(virtual, py(script), lines.append)
        return lines

    first = run()
    # Also when another VM runs and the first place is taken.
    with contextlib.closing(take_slot()):
        second = run()
    assert first == second
    assert len(set(" ".join(first).split())) > 8


def test_two_vms_run_at_once_and_keep_their_outputs_apart(wall: Place) -> None:
    seen: list[tuple[float, int, str]] = []
    jobs = [sh(f"echo hello {n}; sleep 3; echo bye {n}; exit {n}") for n in (3, 4)]
    outcomes = run_jobs(wall, jobs, lambda i, line: seen.append((time.monotonic(), i, line)))
    assert [one.status for one in outcomes] == [3, 4]
    for index, n in enumerate((3, 4)):
        assert [line for _, i, line in seen if i == index] == [f"hello {n}", f"bye {n}"]
    assert {line[:5] for _, _, line in seen[:2]} == {"hello"}  # both began before either ended


def test_a_failing_vm_ends_its_neighbours(wall: Place) -> None:
    jobs = [sh("sleep 60"), sh("echo stuck; sleep 60", watchdog_s=2)]
    started = time.monotonic()
    with pytest.raises(VmError, match="stuck"):
        run_jobs(wall, [jobs[1], jobs[0]], lambda *_: None)
    assert time.monotonic() - started < 20


def test_somebody_gives_up_and_all_vms_end_at_once(wall: Place) -> None:
    lines: list[str] = []
    processes: list[int] = []
    with pytest.raises(RunEnded, match="ended before it was over"):
        run_jobs(
            wall,
            [sh("echo up; sleep 600"), sh("echo up; sleep 600")],
            lambda _, line: lines.append(line),
            lambda _, process: processes.append(process),
            lambda: len(lines) == 2,
        )
    assert lines == ["up", "up"]
    assert len(processes) == 2
    assert not any(Path(f"/proc/{process}").exists() for process in processes)


def test_watchdog_ends_a_busy_loop_and_shows_where_it_was(virtual: Place) -> None:
    script = (
        "import sys; print('working', flush=True); print('on it', flush=True);"
        "print('last words', file=sys.stderr, flush=True)\nwhile True: pass"
    )
    started = time.monotonic()
    with pytest.raises(VmError) as caught:
        run_job(virtual, py(script, watchdog_s=3), lambda _: None)
    assert 3 <= time.monotonic() - started < 20
    said = str(caught.value)
    assert "no progress for 3 s" in said
    assert "its last line was: on it" in said
    assert "| last words" in said
    assert "busy loop" in caught.value.hint


def test_watchdog_counts_from_the_last_line(wall: Place) -> None:
    job = sh("for i in 1 2 3 4 5; do sleep 1; echo $i; done", watchdog_s=4)
    assert run_job(wall, job, lambda _: None).status == 0


def test_too_small_memory_is_refused_before_anything_starts(virtual: Place) -> None:
    with pytest.raises(ConfigError, match=r"vm\.memory: must be ≥ 256 ?MiB, got 64 ?MiB"):
        run_job(virtual, Job(("/bin/true",), 64 * 2**20), lambda _: None)


def test_guest_that_eats_all_its_memory_says_so(virtual: Place) -> None:
    script = "print('eating', flush=True); a = [bytearray(b'x' * 2**20) for _ in range(2000)]"
    job = Job(("python", "-c", script), 256 * 2**20, watchdog_s=60)
    with pytest.raises(VmError, match="ran out of memory") as caught:
        run_job(virtual, job, lambda _: None)
    assert "vm.memory" in caught.value.hint


SCATTERED = """
import mmap, sys
pages = int(sys.argv[1])
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
memory = mmap.mmap(-1, 2 * pages * 4096, flags=flags)
for page in range(pages):
    memory.madvise(mmap.MADV_DONTNEED, 2 * page * 4096, 4096)
"""


def test_memory_in_more_pieces_than_the_host_maps_is_named(virtual: Place) -> None:
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    if limit > 200_000:
        pytest.skip(f"this host maps {limit} pieces for a process; so many would take long")
    job = Job(("python", "-c", SCATTERED, str(limit + 5000)), 2 * 2**30)
    with pytest.raises(VmError, match=r"vm\.max_map_count") as caught:
        run_job(virtual, job, lambda _: None)
    assert "sysctl" in caught.value.hint
    fits = replace(job, argv=(*job.argv[:-1], str(limit - 5000)))
    assert run_job(virtual, fits, lambda _: None).status == 0


def test_command_that_does_not_exist_is_an_error_that_names_it(virtual: Place) -> None:
    outcome = run_job(virtual, Job(("no-such-command",), SMALL), lambda _: None)
    assert outcome.status == 127
    assert "no-such-command: cannot be started" in outcome.errors


def test_kernel_that_does_not_boot_is_an_error(tmp_path: Path) -> None:
    from geokv.vm import Kernel

    broken = tmp_path / "linux"
    broken.write_text("#!/bin/sh\necho no kernel here\nexit 1\n")
    broken.chmod(0o755)
    place = Place("virtual", "broken", Kernel(broken, "none"))
    with pytest.raises(VmError, match="no kernel here"):
        run_job(place, sh("true"), lambda _: None)


def test_guests_do_not_meet_in_a_temporary_folder(virtual: Place) -> None:
    """Their random names are equal; one name tried in vain would cost one of them time."""
    script = (
        "import tempfile, time; d = tempfile.mkdtemp(); print(d, time.monotonic_ns(), flush=True);"
        "time.sleep(0.01); print(time.monotonic_ns())"
    )
    seen: list[list[str]] = [[], []]
    run_jobs(virtual, [py(script), py(script)], lambda number, line: seen[number].append(line))
    assert seen[0] == seen[1]
    assert not Path(seen[0][0].split()[0]).exists(), "it is not on the host"


def test_guest_sees_this_file_and_writes_are_seen_here(virtual: Place, tmp_path: Path) -> None:
    job = sh(f"cp {__file__} {tmp_path}/copy && id -u && pwd && ls -d geokv")
    lines: list[str] = []
    assert run_job(virtual, job, lines.append).status == 0
    assert (tmp_path / "copy").read_bytes() == Path(__file__).read_bytes()
    assert lines == ["0", "/run/geokv/root", "geokv"]


def test_no_path_of_this_machine_reaches_what_runs(virtual: Place) -> None:
    """Where geokv and its Python lie must not be seen in a run's numbers."""
    script = "import sys, geokv; print(sys.executable); print(geokv.__file__)"
    lines: list[str] = []
    run_job(virtual, py(script), lines.append)
    assert Path(lines[0]).parent == Path("/run/geokv/python/bin")
    assert lines[1] == "/run/geokv/root/geokv/__init__.py"
    seen: list[str] = []
    run_job(virtual, sh("cat /proc/cmdline"), seen.append)
    for place in (CHECKOUT, Path(sys.prefix), Path.home()):
        assert str(place) not in seen[0]


STAMPS = """
import sys
from geokv.vm import Job, choose_place
from geokv.vm.supervise import run_job

stamps = "import time, geokv.errors; print([time.monotonic_ns() for _ in range(3)])"
job = Job(("python", "-c", stamps), 1 << 30, 60)
sys.exit(run_job(choose_place("virtual"), job, print).status)
"""


def test_how_deep_a_checkout_and_its_temporary_folder_lie_moves_no_clock(
    virtual: Place, tmp_path: Path
) -> None:
    """Every folder on the way to a file costs readings of the clock, once."""
    deep = tmp_path / "a" / "b" / "c" / "d"
    for part in ("geokv", "netem"):
        shutil.copytree(CHECKOUT / part, deep / part)
    (deep / "tmp").mkdir()

    def stamps(checkout: Path, **changes: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", STAMPS],
            env={**os.environ, "PYTHONPATH": str(checkout), **changes},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    here = stamps(CHECKOUT)
    assert here.count(",") == 2
    assert stamps(deep, TMPDIR=str(deep / "tmp")) == here


def test_what_libraries_keep_at_home_stays_in_the_guest(virtual: Place) -> None:
    """scapy writes a cache there; without a home of its own a guest would write to the host's /."""
    lines: list[str] = []
    job = sh('mkdir -p "$HOME/.cache/x" && echo "$HOME" && ls -d "$HOME"/.cache/x')
    assert run_job(virtual, job, lines.append).status == 0
    assert lines == ["/run/home", "/run/home/.cache/x"]
    assert not Path("/run/home").exists()


def test_a_wait_is_exact_to_the_microsecond(virtual: Place) -> None:
    """asyncio's own timers would make 1 ms of the half that 100 km of fibre take."""
    script = (
        "import asyncio, time; from geokv.clock import now_ns, wait_until_ns\n"
        # The kernel's timers are of high resolution from its first tick on, 10 ms after boot.
        "time.sleep(0.02)\n"
        "async def main():\n"
        "    for ns in (1_000, 50_000, 500_000, 337_160_800):\n"
        "        until = now_ns() + ns; await wait_until_ns(until); print(now_ns() - until)\n"
        "asyncio.run(main())"
    )
    lines: list[str] = []
    assert run_job(virtual, py(script), lines.append).status == 0
    assert len(lines) == 4
    assert all(0 <= int(over) < 5_000 for over in lines), lines


def test_a_job_may_hold_the_open_files_of_a_large_lab(virtual: Place) -> None:
    lines: list[str] = []
    run_job(virtual, sh("ulimit -n"), lines.append)
    assert int(lines[0]) >= 65_536
