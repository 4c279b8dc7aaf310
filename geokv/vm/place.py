"""Which place a run gets: the VM with either clock, or this host itself."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from geokv.vm.boot import Clock, boot_command, boot_environment
from geokv.vm.job import Job
from geokv.vm.kernel import Kernel, require_kernel


@dataclass(frozen=True)
class Place:
    """Somewhere a job can run.

    Attributes:
        clock: ``virtual`` or ``wall``.
        kernel_name: what a result says its kernel was.
        kernel: the VM's kernel; None when the job runs on the host itself.
    """

    clock: Clock
    kernel_name: str
    kernel: Kernel | None

    def command(self, job: Job, folder: Path, processor: int) -> list[str]:
        """Arguments of the process that carries the job; it starts in ``folder``."""
        if self.kernel is None:
            return [sys.executable, "-m", "geokv.vm.guest", str(folder)]
        return boot_command(self.kernel, self.clock, job, processor)

    def environment(self) -> dict[str, str]:
        """Of the process that carries a job."""
        return dict(os.environ) if self.kernel is None else boot_environment()


def choose_place(clock: Clock) -> Place:
    """The place for a clock: the VM, but for real time on a host that can do it natively.

    Raises:
        HostError: what is missing, and the command that brings it.
    """
    if clock == "wall" and os.geteuid() == 0 and host_has_netem():
        return Place(clock, f"{platform.release()} (this host, real clock)", None)
    return in_vm(clock)


def in_vm(clock: Clock) -> Place:
    """The embedded VM with either clock.

    Raises:
        HostError: the kernel is not built.
    """
    kernel = require_kernel()
    word = "virtual" if clock == "virtual" else "real"
    return Place(clock, f"{kernel.release} (embedded VM, {word} clock)", kernel)


def host_has_netem() -> bool:
    """Whether this host's kernel takes a netem qdisc, tried in a namespace of its own."""
    script = "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"
    attempt = subprocess.run(
        ["unshare", "--net", "sh", "-c", script],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=20,
    )
    return attempt.returncode == 0
