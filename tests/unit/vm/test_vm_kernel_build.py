"""A build of the kernel that is stopped half-way: no compiler and no folder is left."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from geokv.ending import Stopped
from geokv.paths import CHECKOUT
from geokv.vm import kernel

MAKEFILE = """\
allnoconfig:
\ttouch $(O)/.config
linux:
\t@echo '  CC      slow.o'
\t@sleep {seconds}
"""


def recipe(folder: Path, makefile: str) -> None:
    """The real script, over a source that takes for ever."""
    (folder / "recipe" / "patches").mkdir(parents=True)
    shutil.copy2(CHECKOUT / "netem" / "kernel" / "build.sh", folder / "recipe" / "build.sh")
    (folder / "recipe" / "config").write_text("")
    change = "--- a/README\n+++ b/README\n@@ -1 +1 @@\n-one\n+two\n"
    (folder / "recipe" / "patches" / "0001-x.patch").write_text(change)
    source = folder / "linux-source"
    source.mkdir()
    (source / "Makefile").write_text(makefile)
    (source / "README").write_text("one\n")
    with tarfile.open(folder / "linux-source-6.12.tar.xz", "w:xz") as archive:
        archive.add(source, "linux-source")


def running(words: str) -> bool:
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return words in shown.stdout


def test_stopping_a_build_ends_its_compilers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = f"600.{time.monotonic_ns() % 10**9:09}"
    recipe(tmp_path, MAKEFILE.format(seconds=seconds))
    monkeypatch.setattr(kernel, "RECIPE", tmp_path / "recipe")
    monkeypatch.setattr(kernel, "SOURCES", tmp_path)
    monkeypatch.setattr(kernel, "BUILD_TOOLS", ("make", "patch", "xz"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for tool in kernel.BUILD_TOOLS:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    steps: list[tuple[str, int]] = []

    def on_step(phase: str, made: int) -> None:
        steps.append((phase, made))
        if made:
            ends = time.monotonic() + 20
            while not running(f"sleep {seconds}"):
                assert time.monotonic() < ends
                time.sleep(0.02)
            raise Stopped(signal.SIGTERM)

    start_s = time.monotonic()
    with pytest.raises(Stopped):
        kernel.build_kernel(on_step)
    assert time.monotonic() - start_s < 60
    assert steps[-1] == ("compile", 1)
    assert not running(f"sleep {seconds}")
    assert list(kernel.kernel_path().parent.iterdir()) == []
