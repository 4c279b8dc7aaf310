"""The guest kernel: built once from Debian's source, kept in the user's cache.

The same kernel serves both clocks, so a run in real time differs from one in virtual
time by its clock and nothing else. (Debian's prebuilt user-mode-linux has neither the
virtual clock nor a boot on processors with AMX; see ``patches/``.)
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from geokv.errors import HostError, VmError
from geokv.paths import CHECKOUT, cache_folder

RECIPE = CHECKOUT / "netem" / "kernel"
SOURCES = Path("/usr/src")
SOURCE_SERIES = "6.12"
BUILD_TOOLS = ("gcc", "make", "flex", "bison", "bc", "patch", "xz")
STEPS = 890
"""Lines a build prints for files it makes: the length of a progress bar."""
_PUT_AWAY_S = 30.0

_MADE = re.compile(r"^\s+(CC|AS|AR|LD|HOSTCC|HOSTLD|GEN|UPD|SYSHDR|WRAP)\s")


@dataclass(frozen=True)
class Kernel:
    """A bootable User-Mode Linux kernel.

    Attributes:
        path: the executable.
        release: as ``uname -r`` says inside: ``6.12.117-geokv``.
    """

    path: Path
    release: str


def require_x86_64() -> None:
    """Raises HostError on processors User-Mode Linux does not run on."""
    if platform.machine() != "x86_64":
        raise HostError(
            f"the embedded VM needs an x86-64 processor, this one is {platform.machine()}",
            "run natively: --clock wall as root on a kernel that has sch_netem",
        )


def source_archive() -> Path:
    """Debian's kernel source archive.

    Raises:
        HostError: it is not installed.
    """
    archive = SOURCES / f"linux-source-{SOURCE_SERIES}.tar.xz"
    if not archive.exists():
        raise HostError(
            f"{archive} is missing: the guest kernel is built from it",
            f"sudo apt-get install linux-source-{SOURCE_SERIES}",
        )
    return archive


def kernel_path() -> Path:
    """Where the guest kernel for this recipe and this source lies, or will lie.

    The name is a hash of the config, the patches, the build script and the
    source archive's size and date, so a changed recipe never meets an old kernel.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (RECIPE / "config", RECIPE / "build.sh", *sorted(RECIPE.glob("patches/*.patch"))):
        digest.update(part.read_bytes())
    archive = SOURCES / f"linux-source-{SOURCE_SERIES}.tar.xz"
    if archive.exists():
        status = archive.stat()
        digest.update(f"{status.st_size} {int(status.st_mtime)}".encode())
    return cache_folder() / "kernel" / digest.hexdigest() / "linux"


def find_kernel() -> Kernel | None:
    """Our kernel if it is built, else None."""
    path = kernel_path()
    return Kernel(path, _release(path)) if path.exists() else None


def require_kernel() -> Kernel:
    """Our kernel.

    Raises:
        HostError: it is not built yet.
    """
    require_x86_64()
    kernel = find_kernel()
    if kernel is None:
        raise HostError("the guest kernel is not built yet", "geokv kernel build (a few minutes)")
    return kernel


def build_kernel(on_step: Callable[[str, int], None], timeout_s: float = 3600) -> Kernel:
    """Build the guest kernel unless it exists; concurrent builds do not harm each other.

    Args:
        on_step: called with the phase (``unpack``, ``compile`` …) and files made so far.
        timeout_s: real seconds after which the build is given up.

    Raises:
        HostError: a tool or the source is missing.
        VmError: the build failed; carries the tail of its output.
    """
    require_x86_64()
    found = find_kernel()
    if found:
        return found
    missing = [tool for tool in BUILD_TOOLS if shutil.which(tool) is None]
    if missing:
        packages = " ".join("xz-utils" if tool == "xz" else tool for tool in missing)
        raise HostError(
            f"cannot build the kernel without {', '.join(missing)}",
            f"sudo apt-get install {packages}",
        )
    out = kernel_path()
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [str(RECIPE / "build.sh"), str(source_archive()), str(out)]
    tail: list[str] = []
    made = 0
    phase = "start"
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as build:
        assert build.stdout is not None
        try:
            for line in build.stdout:
                tail = [*tail[-19:], line.rstrip()]
                if _MADE.match(line):
                    made += 1
                elif line.split(" ")[0].strip() in {"unpack", "patch", "configure", "compile"}:
                    phase = line.strip()
                on_step(phase, made)
            status = build.wait(timeout=timeout_s)
        except BaseException:
            _end(build)
            raise
    found = find_kernel()
    if status != 0 or found is None:
        raise VmError(
            "the kernel build failed:\n" + "\n".join(tail),
            f"disk space? {shutil.disk_usage(out.parent).free // 2**20} MiB are free",
        )
    return found


def _end(build: subprocess.Popen[str]) -> None:
    """The script and all compilers; it puts its folder away once they have ended."""
    os.killpg(build.pid, signal.SIGTERM)
    try:
        build.wait(_PUT_AWAY_S)
    except subprocess.TimeoutExpired:
        os.killpg(build.pid, signal.SIGKILL)
        build.wait()


def _release(path: Path) -> str:
    text = subprocess.run(
        [str(path), "--version"],
        capture_output=True,
        text=True,
        timeout=20,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", "")},
    )
    return text.stdout.strip() or path.name
