"""From what somebody typed to drills."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from geokv.config import load_yaml
from geokv.errors import ConfigError
from geokv.lab.profiles import data_folders
from geokv.scenario import Scenario, load_scenario
from geokv.scenario.paths import suggest

ALL = "all"


def shipped_drills() -> dict[str, Path]:
    """Name → file of every drill in ``scenarios/drills``, by name."""
    found: dict[str, Path] = {}
    for folder in data_folders("scenarios", "drills"):
        for path in folder.glob("*.yaml"):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def find_drills(names: Sequence[str]) -> list[Path]:
    """Files of drills, each once, in the order they were named.

    Args:
        names: of shipped drills, paths of files or of folders of them, or ``all``.

    Raises:
        ConfigError: nothing is called that; the hint lists what there is.
    """
    found: dict[Path, None] = {}
    for name in names:
        found.update(dict.fromkeys(_files(name)))
    return list(found)


def _files(name: str) -> list[Path]:
    shipped = shipped_drills()
    if name == ALL:
        return list(shipped.values())
    if name in shipped:
        return [shipped[name]]
    path = Path(name)
    if path.is_dir():
        files = sorted(path.glob("*.yaml"))
        if files:
            return files
    if path.is_file():
        return [path]
    raise ConfigError(
        f"no drill {name!r}{suggest(name, list(shipped))}",
        f"drills: {', '.join(shipped) or 'none'}, all; or give a YAML file, or a folder of them",
    )


def load_drill(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """Load a file that is a drill.

    Raises:
        ConfigError: it is none, or is wrong.
    """
    scenario = load_scenario(path, list(overrides))
    if not scenario.is_drill:
        raise ConfigError(f"{path}: is not a drill", "a drill has workload.kind: stream; geokv run")
    return scenario


def without_control(path: Path) -> list[str]:
    """The override that leaves a drill's control away, where it has one."""
    return ["control=null"] if load_yaml(path).get("control") is not None else []
