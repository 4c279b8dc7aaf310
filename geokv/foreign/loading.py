"""Importing code that is no part of geokv, in the same way on the host and inside the VM."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from geokv.errors import ConfigError
from geokv.foreign.homes import guest_has, hidden_by
from geokv.foreign.names import entries, is_reference
from geokv.paths import CHECKOUT

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GUEST = Path("/run/geokv/root")
"""The checkout, as ``netem/kernel/init`` mounts it in every VM."""
_importing: list[str] = []
_folders: list[str] = []
_imported: set[str] = set()


def importing() -> str:
    """The module that is being imported for its code; empty when none is."""
    return _importing[-1] if _importing else ""


def use_folders(folders: Sequence[str]) -> None:
    """Find modules there, after everything that is installed, and no longer where they were found
    before. What was imported from there is forgotten, so that a file that was edited, or another
    one of the same name, is read anew."""
    if not folders and not _folders:
        return
    for folder in _folders:
        if folder in sys.path:
            sys.path.remove(folder)
    _folders[:] = [folder for folder in folders if folder not in sys.path]
    sys.path.extend(_folders)
    for name in _imported:
        sys.modules.pop(name, None)
    _imported.clear()
    importlib.invalidate_caches()


def load(group: str, name: str) -> Any:
    """What ``name`` stands for: a class, or whatever makes the thing wanted.

    Args:
        group: entry point group in which a plain name is looked up.

    Raises:
        ConfigError: it is not there, or its module cannot be imported; the message says why.
    """
    if not is_reference(name):
        return _load_registered(group, name)
    module_name, _, attribute = name.partition(":")
    module = _module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigError(f"{module.__file__} has no {attribute}") from None


def provenance(group: str, name: str) -> dict[str, str]:
    """Name, file and BLAKE2b-128 of its text, for the manifest of a run; of a package that has
    registered the name, its own name and version too.

    Raises:
        ConfigError: as ``load``, or the VM cannot see the file.
    """
    package = {}
    if is_reference(name):
        module = _module(name.partition(":")[0])
    else:
        entry = _entry(group, name)
        module = _module(entry.module)
        if entry.dist is not None:
            package = {"package": f"{entry.dist.name} {entry.dist.version}"}
    path = Path(module.__file__ or "")
    if hidden := hidden_by(path):
        raise ConfigError(
            f"{name}: the VM cannot see {path}: it has a {hidden} of its own",
            "install the package where geokv is, and not as an editable one from there",
        )
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return {"name": name, "file": path.name, "blake2b": digest, **package}


def _entry(group: str, name: str) -> EntryPoint:
    found = next((one for one in entries(group) if one.name == name), None)
    if found is None:
        raise ConfigError(
            f"no installed package has registered {name!r} under {group}{_inside()}",
            _looked_in() or "name it module:Class, or install the package that has it",
        )
    return found


def _inside() -> str:
    return ", inside the VM" if CHECKOUT == _GUEST else ""


def _looked_in() -> str:
    """Inside the VM: where it looks, for whoever sees his package on the host."""
    if CHECKOUT != _GUEST:
        return ""
    return (
        "the VM has the packages that are installed where geokv is, and the folders of `code` "
        f"({', '.join(_beside()) or 'none'}): install it there, or name its folder in `code`"
    )


def _beside() -> list[str]:
    """Where this process looks beside what geokv has. A site was forked with the search path of
    who read `code`, and knows no more of it."""
    paths = [Path(one) for one in sys.path if one]
    return [str(one) for one in paths if one.is_dir() and one != CHECKOUT and not guest_has(one)]


def _load_registered(group: str, name: str) -> Any:
    entry = _entry(group, name)
    with _guarded(entry.module):
        return entry.load()


def _module(name: str) -> ModuleType:
    """The module; the running script itself where it is that."""
    with _guarded(name):
        found = importlib.util.find_spec(name.partition(".")[0])
        if found is None:
            raise ConfigError(
                f"there is no module {name}{_inside()}",
                _looked_in()
                or "modules are looked for beside the scenario's file and in the working folder; "
                "`code` names others",
            )
        main = sys.modules.get("__main__")
        script = getattr(main, "__file__", None)
        if main is not None and script and found.origin == str(Path(script).resolve()):
            return main
        if name not in sys.modules:
            _imported.add(name)
        return importlib.import_module(name)


@contextmanager
def _guarded(name: str) -> Iterator[None]:
    """Whatever the code of others raises is told with its place."""
    _importing.append(name)
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        lacking = isinstance(error, ModuleNotFoundError)
        raise ConfigError(
            f"{name} cannot be imported{_inside()}: {_told(error)}", _looked_in() * lacking
        ) from error
    finally:
        _importing.pop()


def _told(error: BaseException) -> str:
    """The error, and where it was raised last in code that is not Python's own."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if path != __file__ and not path.startswith("<frozen"):
            place = f" ({path}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}"
