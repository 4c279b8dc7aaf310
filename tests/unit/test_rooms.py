"""Lower rooms never import upper ones, as docs/architecture.md and CONTRIBUTING.md have it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import geokv

ROOT = Path(geokv.__file__).parent
GROUND = {"errors", "units", "config", "clock", "memory", "foreign", "paths", "__version__"}
"""What every room may stand on."""
MAY_USE = {
    "engine": set(),
    "cache": set(),
    "routing": set(),
    "lab": set(),
    "vm": set(),
    "scenario": {"lab.topology", "lab.profiles"},
    "site": {"engine", "cache", "ending"},
    "live": {"scenario", "lab.plan", "ending"},
    "coordinator": {"scenario", "lab", "engine", "cache", "routing", "site", "live"},
    "measure": {"scenario"},
    "report": {"measure", "scenario", "live", "lab", "vm.boot", "loopback"},
}
"""Room → what it may import beside: a whole room, or one module of it."""


def _imported(path: Path) -> Iterator[str]:
    """Modules of this package that a file imports anywhere, without the package's name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{one.name}" for one in node.names]
        else:
            continue
        yield from (name.removeprefix("geokv.") for name in names if name.startswith("geokv."))


def _strays(folder: Path, room: str) -> list[str]:
    """What a room imports and may not."""
    allowed = GROUND | MAY_USE[room] | {room}
    return [
        f"{path.relative_to(folder)}: {name}"
        for path in sorted((folder / room).rglob("*.py"))
        for name in _imported(path)
        if not any(name == one or name.startswith(f"{one}.") for one in allowed)
    ]


@pytest.mark.parametrize("room", MAY_USE)
def test_a_room_imports_what_lies_below_it(room: str) -> None:
    assert _strays(ROOT, room) == []


def test_a_stray_import_is_seen(tmp_path: Path) -> None:
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario" / "one.py").write_text(
        "from geokv import site, errors\n"
        "from geokv.lab.topology import Link\n"
        "def late():\n    from geokv.lab.topologies import other\n    import geokv.cache.shared\n"
    )
    assert _strays(tmp_path, "scenario") == [
        "scenario/one.py: site",
        "scenario/one.py: lab.topologies.other",
        "scenario/one.py: cache.shared",
    ]
