"""A kernel is found by what it was made from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from geokv.errors import HostError
from geokv.vm import kernel


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "recipe"
    shutil.copytree(kernel.RECIPE, copy)
    sources = tmp_path / "src"
    sources.mkdir()
    (sources / f"linux-source-{kernel.SOURCE_SERIES}.tar.xz").write_bytes(b"source")
    monkeypatch.setattr(kernel, "RECIPE", copy)
    monkeypatch.setattr(kernel, "SOURCES", sources)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return copy


def test_path_is_in_the_users_cache_and_stays(recipe: Path, tmp_path: Path) -> None:
    assert kernel.kernel_path() == kernel.kernel_path()
    assert kernel.kernel_path().is_relative_to(tmp_path / "cache" / "geokv" / "kernel")


@pytest.mark.parametrize("part", ["config", "build.sh", "patches/0001-um-large-xstate.patch"])
def test_path_changes_with_what_the_kernel_is_made_from(recipe: Path, part: str) -> None:
    before = kernel.kernel_path()
    with (recipe / part).open("a") as stream:
        stream.write("\n# changed\n")
    assert kernel.kernel_path() != before


def test_path_changes_with_a_new_patch_and_a_new_source(recipe: Path, tmp_path: Path) -> None:
    paths = {kernel.kernel_path()}
    (recipe / "patches" / "0009-more.patch").write_text("x")
    paths.add(kernel.kernel_path())
    archive = kernel.source_archive()
    archive.write_bytes(b"another source")
    paths.add(kernel.kernel_path())
    os.utime(archive, (1, 1))
    paths.add(kernel.kernel_path())
    assert len(paths) == 4


def test_init_is_not_part_of_the_kernel(recipe: Path) -> None:
    before = kernel.kernel_path()
    (recipe / "init").write_text("#!/bin/sh\n")
    assert kernel.kernel_path() == before


def test_missing_kernel_and_missing_source_say_what_to_do(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kernel.find_kernel() is None
    monkeypatch.setattr(kernel.platform, "machine", lambda: "x86_64")
    with pytest.raises(HostError, match="not built") as caught:
        kernel.require_kernel()
    assert "geokv kernel build" in caught.value.hint
    kernel.source_archive().unlink()
    with pytest.raises(HostError, match=r"linux-source-.*\.tar\.xz is missing") as caught:
        kernel.source_archive()
    assert caught.value.hint.startswith("sudo apt-get install linux-source-")


def test_other_processors_are_told_the_native_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel.platform, "machine", lambda: "aarch64")
    with pytest.raises(HostError, match=r"x86-64.*aarch64") as caught:
        kernel.require_kernel()
    assert "--clock wall" in caught.value.hint
