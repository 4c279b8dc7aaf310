"""The command line that boots a VM for one job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Literal

from geokv.errors import ConfigError, HostError
from geokv.paths import CHECKOUT, models_folder
from geokv.units import NS_PER_S, show_size
from geokv.vm.job import Job
from geokv.vm.kernel import RECIPE, Kernel
from geokv.vm.pace import kernel_option

Clock = Literal["virtual", "wall"]

LEAST_MEMORY_BYTES = 256 * 2**20
ENOUGH_MAPPINGS = 2**20
"""Pieces in which a guest process of 4 GiB can lie at worst: each page is one for the host."""
RAISE_MAPPINGS = f"sysctl -w vm.max_map_count={ENOUGH_MAPPINGS} as root on the host"
START_OF_TIME_S = 1_767_225_600
"""2026-01-01 00:00 UTC. Every virtual run starts at the same instant."""


def boot_command(kernel: Kernel, clock: Clock, job: Job, processor: int) -> list[str]:
    """Arguments of the VM's process; it dies with the process that starts it.

    They name no folder of this machine: the kernel stirs its command line into its random
    numbers, and a run must not depend on where geokv lies or which slot was free. What
    the guest has to find is linked in the job's folder (``link_into``), which must be the
    process's working folder.

    Raises:
        ConfigError: memory too small for a guest.
    """
    if job.memory_bytes < LEAST_MEMORY_BYTES:
        raise ConfigError(
            f"vm.memory: must be ≥ {show_size(LEAST_MEMORY_BYTES)}, got "
            f"{show_size(job.memory_bytes)}"
        )
    command = [
        *_fixed_addresses(),
        *("setpriv", "--pdeathsig", "KILL", "taskset", "--cpu-list", str(processor)),
        str(kernel.path),
        f"mem={job.memory_bytes // 2**20}M",
        "quiet",
        "norandmaps",
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        # Still the host's /proc at that moment: the working folder of the VM's own process.
        "init=/proc/self/cwd/init",
        "uml_dir=./",
        "umid=vm",
        "con=null",
        "con0=fd:0,fd:1" if job.interactive else "con0=null,fd:1",
        "ssl=null",
        "panic=-1",
        "ipv6.disable_ipv6=1",
    ]
    if clock == "virtual":
        command += ["time-travel=inf-cpu", f"time-travel-start={START_OF_TIME_S * NS_PER_S}"]
        if job.pace is not None:
            command.append(kernel_option(job.pace))
    return command


def link_into(folder: Path) -> None:
    """Link what ``netem/kernel/init`` mounts and runs into a job's folder."""
    names = (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3", "python")
    prefix = Path(sys.prefix)
    links = {
        "init": RECIPE / "init",
        "root": CHECKOUT,
        "prefix": prefix,
        "interpreter": Path(next(name for name in names if (prefix / "bin" / name).exists())),
        "models": models_folder(),
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)


def boot_environment() -> dict[str, str]:
    """Variables for the VM's process: where its memory file lies (unlinked at once)."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "TMPDIR": str(memory_folder()),
        "HOME": os.environ.get("HOME", "/"),
    }


@cache
def _fixed_addresses() -> tuple[str, ...]:
    """What keeps the host from placing the VM's process at random, where that is allowed.

    The guest's memory map begins where the process's heap ends: a random place costs it up
    to 200 MB of bookkeeping and makes page numbers differ between runs. Some containers
    forbid it; a run there is as correct, only larger.
    """
    command = ("setarch", "--addr-no-randomize")
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, timeout=20)
    except FileNotFoundError:
        return ()
    return command if tried.returncode == 0 else ()


def memory_folder() -> Path:
    """A tmpfs that allows execution, for the guest's memory.

    Raises:
        HostError: this machine has none.
    """
    for candidate in (Path("/dev/shm"), Path(os.environ.get("XDG_RUNTIME_DIR", "/run/shm"))):
        if candidate.is_dir() and os.access(candidate, os.W_OK):
            flags = os.statvfs(candidate).f_flag
            if not flags & os.ST_NOEXEC:
                return candidate
    raise HostError(
        "no tmpfs that allows execution was found for the VM's memory",
        "mount -o remount,exec /dev/shm",
    )


def missing_tools() -> list[str]:
    """Host programs that booting needs and that are not there."""
    return [tool for tool in ("setpriv", "taskset", "ip") if shutil.which(tool) is None]
