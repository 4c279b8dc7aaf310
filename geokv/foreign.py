"""Code that is no part of geokv: a policy or a fault of the user's own.

It is named ``module:Class`` and lies in a folder of the scenario's ``code``, or it is installed
and has registered a plain name under an entry point group. Both are found here, in the same way
on the host and inside the VM, which sees the host's files.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from geokv.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

EVICTION = "geokv.eviction"
"""Entry point group of eviction policies."""
ROUTING = "geokv.routing"
"""Entry point group of routing policies."""
REFERENCE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
"""``module:Class`` or ``package.module:Class``."""
_HIDDEN = ("/run", "/proc", "/sys", "/dev")
"""Where the VM has mounts of its own."""
_importing: list[str] = []
_folders: list[str] = []
_imported: set[str] = set()


def is_reference(text: str) -> bool:
    """Whether it is written as ``module:Class``."""
    return re.match(REFERENCE, text) is not None


def registered(group: str) -> list[str]:
    """Names that installed packages have registered, sorted."""
    # Imported late: a run with nothing but our own code looks at no package.
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group).names)


def known_name(name: str, ours: Sequence[str], group: str) -> str:
    """The name itself, if it is one of ours, a reference, or registered.

    Raises:
        ValueError: it is none of them; for a field's validator.
    """
    if name in ours or is_reference(name):
        return name
    names = [*ours, *registered(group)]
    if name in names:
        return name
    raise ValueError(f"must be {', '.join(names)} or module:Class, got {name!r}")


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


def check_folder(folder: str) -> None:
    """A folder the VM can read as well.

    Raises:
        ConfigError: it does not exist, or the VM has something else in its place.
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"code: no such folder {folder}")
    if any(Path(folder).is_relative_to(hidden) for hidden in _HIDDEN):
        raise ConfigError(
            f"code: the VM cannot see {folder}: it has a {Path(folder).parts[1]} of its own",
            "keep the module in another folder",
        )


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
    """Name, file and BLAKE2b-128 of its text, for the manifest of a run.

    Raises:
        ConfigError: as ``load``.
    """
    if is_reference(name):
        module = _module(name.partition(":")[0])
    else:
        module = _module(_entry(group, name).module)
    path = Path(module.__file__ or "")
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return {"name": name, "file": path.name, "blake2b": digest}


def _entry(group: str, name: str) -> EntryPoint:
    from importlib.metadata import entry_points

    found = list(entry_points(group=group, name=name))
    if not found:
        raise ConfigError(
            f"no installed package has registered {name!r} under {group}",
            "name it module:Class, or install the package that has it",
        )
    return found[0]


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
                f"there is no module {name}",
                "modules are looked for beside the scenario's file and in the working folder; "
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
        raise ConfigError(f"{name} cannot be imported: {_told(error)}") from error
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
