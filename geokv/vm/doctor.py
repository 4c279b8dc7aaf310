"""What this machine offers a run, found by trying it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from geokv.errors import GeokvError
from geokv.units import show_size
from geokv.vm.boot import ENOUGH_MAPPINGS, RAISE_MAPPINGS, memory_folder, missing_tools
from geokv.vm.job import Job
from geokv.vm.kernel import find_kernel, source_archive
from geokv.vm.place import host_has_netem, in_vm
from geokv.vm.supervise import run_job

State = Literal["ok", "missing", "note"]

_GUEST_TOOLS = {
    "mnexec": "mininet",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
    "ifconfig": "net-tools",
    "tc": "iproute2",
    "ip": "iproute2",
}
_LEAST_FREE_BYTES = 4 * 2**30
_SPEED_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        needed: a run in virtual time cannot do without it.
        hint: what to do when it is missing.
    """

    name: str
    state: State
    said: str
    hint: str = ""
    needed: bool = True


@dataclass(frozen=True)
class Diagnosis:
    """Everything found, and what a run would get.

    Attributes:
        places: clock → the kernel a run with it would use, or why it cannot run.
    """

    findings: list[Finding]
    places: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether runs in virtual time are possible."""
        return not any(one.needed and one.state == "missing" for one in self.findings)


def diagnose() -> Diagnosis:
    """Look at processor, memory, tools, packages and kernels; boots the VM once if it can."""
    looks: list[Callable[[], list[Finding]]] = [
        _processor,
        _memory,
        _mappings,
        _user,
        _tools,
        _packages,
        _host_kernel,
        _guest_kernel,
    ]
    findings = [finding for look in looks for finding in look()]
    return Diagnosis(findings, _places())


def _processor() -> list[Finding]:
    machine = platform.machine()
    if machine != "x86_64":
        return [
            Finding(
                "processor",
                "missing",
                machine,
                "the embedded VM is x86-64 only; use --clock wall as root on a kernel "
                "with sch_netem",
            )
        ]
    text = Path("/proc/cpuinfo").read_text()
    flags = text.split("flags", 1)[-1].split("\n", 1)[0].split()
    fast = [flag for flag in _SPEED_FLAGS if flag in flags]
    return [
        Finding(
            "processor",
            "ok",
            f"{machine}, {len(os.sched_getaffinity(0))} usable, "
            f"{' '.join(fast) or 'no wide vectors'}",
        )
    ]


def _memory() -> list[Finding]:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    few = free < _LEAST_FREE_BYTES
    found = [
        Finding(
            "memory",
            "missing" if few else "ok",
            f"{show_size(free)} available",
            "close something: a run takes about 2 GiB per VM",
        )
    ]
    try:
        folder = memory_folder()
        room = shutil.disk_usage(folder).free
        found.append(Finding("VM memory", "ok", f"{folder}, {show_size(room)} free"))
    except GeokvError as error:
        found.append(Finding("VM memory", "missing", error.message, error.hint))
    return found


def _mappings(limit_file: Path = Path("/proc/sys/vm/max_map_count")) -> list[Finding]:
    """The host maps each page of a guest process by itself where neighbours are not neighbours
    in the guest's memory, and kills the process that would have more pieces than it allows."""
    limit = int(limit_file.read_text())
    few = limit < ENOUGH_MAPPINGS
    said = f"{limit:,} pieces of memory for a guest process (vm.max_map_count)"
    if few:
        said += "; one of much scattered memory is killed for more"
    hint = f"{RAISE_MAPPINGS}, if runs of many sites or full size end so"
    return [Finding("mappings", "note" if few else "ok", said, hint, needed=False)]


def _user() -> list[Finding]:
    root = os.geteuid() == 0
    said = "root" if root else "an ordinary user: enough for the VM, not for native runs"
    return [Finding("user", "ok" if root else "note", said, needed=False)]


def _tools() -> list[Finding]:
    missing = {
        tool: package
        for tool, package in _GUEST_TOOLS.items()
        if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None
    }
    missing |= dict.fromkeys(set(missing_tools()) - {"ip"}, "util-linux")
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        return [
            Finding(
                "tools",
                "missing",
                ", ".join(missing) + " not found",
                f"sudo apt-get install {packages}",
            )
        ]
    return [Finding("tools", "ok", ", ".join(_GUEST_TOOLS))]


def _packages() -> list[Finding]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return [Finding("torch", "missing", "not installed", "make setup")]
    return [Finding("torch", "ok", f"{version}, Python {sys.version.split()[0]}")]


def _host_kernel() -> list[Finding]:
    has = os.geteuid() == 0 and host_has_netem()
    said = f"{platform.release()}: " + ("netem is there" if has else "no netem for this user")
    return [
        Finding(
            "host kernel",
            "ok" if has else "note",
            said,
            "fine: runs go to the embedded VM, with either clock",
            needed=False,
        )
    ]


def _guest_kernel() -> list[Finding]:
    kernel = find_kernel()
    if kernel is None:
        try:
            source = f"can be built from {source_archive()}"
            return [
                Finding("guest kernel", "missing", f"not built; {source}", "geokv kernel build")
            ]
        except GeokvError as error:
            return [Finding("guest kernel", "missing", error.message, error.hint)]
    lines: list[str] = []
    try:
        job = Job(("python", "-m", "geokv.coordinator.capabilities"), 2**30, watchdog_s=120)
        outcome = run_job(in_vm("virtual"), job, lines.append)
        if outcome.status:
            tail = outcome.errors.strip().splitlines()[-1:] or ["no message"]
            return [Finding("guest kernel", "missing", tail[0], "geokv kernel build")]
    except GeokvError as error:
        return [Finding("guest kernel", "missing", error.message, error.hint)]
    said = json.loads(lines[-1])
    bad = {name: why for name, (ok, why) in said["capabilities"].items() if not ok}
    if bad:
        return [
            Finding(
                "guest kernel",
                "missing",
                f"{said['kernel']}: no {name} ({why})",
                "remove it and run geokv kernel build",
            )
            for name, why in bad.items()
        ]
    return [
        Finding("guest kernel", "ok", f"{said['kernel']}: boots; {', '.join(said['capabilities'])}")
    ]


def _places() -> dict[str, str]:
    from geokv.vm.place import choose_place

    found: dict[str, str] = {}
    clocks: tuple[Literal["virtual", "wall"], ...] = ("virtual", "wall")
    for clock in clocks:
        try:
            found[clock] = choose_place(clock).kernel_name
        except GeokvError as error:
            found[clock] = f"not possible: {error.message}"
    return found
