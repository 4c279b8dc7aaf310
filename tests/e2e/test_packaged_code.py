"""Policies of a package that is not installed beside geokv, used by their names inside the VM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cli import Geokv, Result

from geokv import load_run
from geokv.paths import CHECKOUT

POLICIES = """
import platform
from pathlib import Path

from geokv import Fifo
from loops.order import backwards

HERE = Path(__file__).parent


class NewestFirst(Fifo):
    def evict(self, coming, may_go):
        (HERE / f"evicts-on-{platform.release()}").touch()
        for key in backwards(self.keys()):
            if may_go(key):
                self.removed(key)
                return key
        return None


class Turns:
    def __init__(self, door, sites):
        self.sites = sites

    def choose(self, request, sites):
        return backwards(self.sites)[request.number % len(self.sites)]
"""
FILES = {
    "loops/__init__.py": "",
    "loops/policies.py": POLICIES,
    "loops/order.py": "def backwards(keys):\n    return list(keys)[::-1]\n",
    "loops-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: loops\nVersion: 1.0\n",
    "loops-1.0.dist-info/entry_points.txt": (
        "[geokv.eviction]\nnewest-first = loops.policies:NewestFirst\n\n"
        "[geokv.routing]\nturns = loops.policies:Turns\n"
    ),
}
DRILL = {
    "name": "packaged",
    "title": "Policies of a package",
    "question": "Does the VM find them?",
    "topology": "pair",
    "deployment": {
        "content": "synthetic", "byte_scale": 64, "device_bytes": "512MiB", "dram_bytes": "512MiB",
    },
    "cache": {
        "directory": {"kind": "central", "site": "a"},
        "tiers": {"dram": {"policy": "newest-first"}},
    },
    "routing": {"policy": "turns"},
    "workload": {
        "kind": "stream", "askers": {"b": 1}, "providers": ["a"], "prefixes": 6,
        "prefix_tokens": 1024, "requests": 12, "cold": "keep",
    },
    "vm": {"memory": "3GiB", "jobs": 1},
}  # fmt: skip


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The folder that ``pip install --target`` would have made."""
    folder = tmp_path / "packages"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run_with(python_path: list[Path], folder: Path, *args: str | Path) -> Result:
    """``geokv run drill.yaml`` by a Python that looks there, too."""
    (folder / "drill.yaml").write_text(yaml.safe_dump(DRILL))
    path = os.pathsep.join(map(str, [CHECKOUT, *python_path]))
    return subprocess.run(
        [sys.executable, "-m", "geokv", "run", "drill.yaml", "--quiet", *map(str, args)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.timeout(300)
def test_both_kinds_of_policies_are_used_by_name(packages: Path, tmp_path: Path, vm: None) -> None:
    done = run_with([packages], tmp_path, "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    run = load_run(tmp_path / "run")
    served = run.requests.query("cell == 0").sort_values("due_ns")["site"]
    assert list(served) == ["b", "a"] * 6
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert [(one["name"], one["file"], one["package"]) for one in manifest["code"]] == [
        ("newest-first", "policies.py", "loops 1.0"),
        ("turns", "policies.py", "loops 1.0"),
    ]
    kept = yaml.safe_load((run.folder / "scenario.yaml").read_text())
    assert kept["code"] == [str(packages)]
    # Six prefixes do not fit: the class was asked who goes, by a site inside the VM's kernel.
    kernel = manifest["kernel"].split()[0]
    assert (packages / "loops" / f"evicts-on-{kernel}").exists()


@pytest.mark.timeout(300)
def test_what_the_vm_does_not_find_is_named(
    packages: Path, tmp_path: Path, geokv: Geokv, vm: None
) -> None:
    """The package's folder is found by itself; that of what it imports is not."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "numerals.py").touch()
    policies = packages / "loops" / "policies.py"
    policies.write_text("import numerals\n" + policies.read_text())
    done = run_with([packages, elsewhere], tmp_path, "--out", "run")
    assert done.returncode in (2, 4), done.stdout + done.stderr
    said = " ".join(done.stderr.split())
    assert "loops.policies cannot be imported, inside the VM" in said
    assert "No module named 'numerals'" in said
    assert f"`code` ({packages})" in said
    assert "Traceback" not in done.stderr
    again = geokv(
        "run", tmp_path / "drill.yaml", "--quiet", "--set", f"code=[{packages}, {elsewhere}]",
        "--out", tmp_path / "again",
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
