"""Where code that is no part of geokv lies, and whether the VM looks there.

Its Python is the host's, seen from inside: the same installed packages, but no ``PYTHONPATH`` and
no folder that a program added to its ``sys.path``.
"""

from __future__ import annotations

import importlib.util
import site
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from geokv.errors import ConfigError
from geokv.foreign.names import entries, is_reference
from geokv.paths import CHECKOUT

_HIDDEN = ("/run", "/proc", "/sys", "/dev")
"""Where the VM has mounts of its own."""


def check_folder(folder: str) -> None:
    """A folder the VM can read as well.

    Raises:
        ConfigError: it does not exist, or the VM has something else in its place.
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"code: no such folder {folder}")
    if hidden := hidden_by(Path(folder)):
        raise ConfigError(
            f"code: the VM cannot see {folder}: it has a {hidden} of its own",
            "keep the module in another folder",
        )


def hidden_by(path: Path) -> str:
    """The mount of the VM's own in whose place a path of the host lies; empty when it is seen."""
    hidden = any(path.is_relative_to(one) for one in _HIDDEN)
    return path.parts[1] if hidden and not guest_has(path) else ""


def guest_has(path: Path) -> bool:
    """Whether a file of a module is where the VM's Python looks without being told: in geokv,
    the standard library, or what is installed beside it."""
    libraries = sysconfig.get_paths()
    packages = [libraries["purelib"], libraries["platlib"], *site.getsitepackages()]
    if any(path.is_relative_to(one) for one in (str(CHECKOUT / "geokv"), *packages)):
        return True
    standard = Path(libraries["stdlib"])
    # Of a virtual environment's Python: what is installed for everybody lies below, and is not
    # looked at.
    return path.is_relative_to(standard) and not {"site-packages", "dist-packages"} & {
        *path.relative_to(standard).parts
    }


def home(group: str, name: str, folders: Sequence[str]) -> str | None:
    """The folder in which the VM must look for what ``name`` stands for, beside ``folders``; None
    where it finds it without, or where there is nothing of that name here either.

    Raises:
        ConfigError: the VM has something else in the place of that folder.
    """
    if is_reference(name):
        place = _home_of_module(name.partition(":")[0].partition(".")[0], folders)
    else:
        entry = next((one for one in entries(group, folders) if one.name == name), None)
        place = Path(str(entry.dist.locate_file(""))) if entry and entry.dist else None
    if place is None or guest_has(place) or place in (CHECKOUT, *map(Path, folders)):
        return None
    place = place.resolve()
    if hidden := hidden_by(place):
        raise ConfigError(
            f"{name} lies in {place}, where the VM cannot see it: it has a {hidden} of its own",
            "install it where geokv is, or into another folder",
        )
    return str(place)


def _home_of_module(name: str, folders: Sequence[str]) -> Path | None:
    if any((Path(one) / f"{name}.py").exists() or (Path(one) / name).is_dir() for one in folders):
        return None
    found = None
    # Raised for a module that was made by hand and has no specification.
    with suppress(ValueError):
        found = importlib.util.find_spec(name)
    if found is None:
        return None
    if found.submodule_search_locations:
        return Path(next(iter(found.submodule_search_locations))).parent
    return Path(found.origin).parent if found.has_location and found.origin else None
