"""Classes as a scenario names them: ``module:Class``, and the folder that module lies in."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geokv.errors import ConfigError
from geokv.foreign import guest_has


def plain(value: Any, folders: dict[str, None]) -> Any:
    """``value`` as YAML would have it: classes by name, paths and tuples as text and lists.

    Args:
        folders: takes the folder of every class that is not installed.

    Raises:
        ConfigError: a class that cannot be found by name.
    """
    if inspect.isclass(value) or inspect.isfunction(value):
        return _named(value, folders)
    if isinstance(value, Mapping):
        return {str(key): plain(one, folders) for key, one in value.items()}
    if isinstance(value, list | tuple | range | set | frozenset):
        return [plain(one, folders) for one in value]
    if isinstance(value, Path):
        return str(value)
    # NumPy's numbers, as a sweep over an array has them.
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def _named(what: Any, folders: dict[str, None]) -> str:
    name = what.__qualname__
    if "." in name:
        raise ConfigError(
            f"{name} cannot be found by its name", "define it at the outermost level of its module"
        )
    module, path = what.__module__, _file_of(what)
    if module == "__main__":
        module = path.stem
        if not module.isidentifier():
            raise ConfigError(f"{path.name} cannot be imported: its name is no Python name")
        folders[str(path.parent)] = None
    elif not guest_has(path):
        folders[str(path.parents[module.count(".") + (path.stem == "__init__")])] = None
    return f"{module}:{name}"


def _file_of(what: Any) -> Path:
    name = getattr(sys.modules.get(what.__module__), "__file__", None)
    if name is None:
        raise ConfigError(
            f"{what.__qualname__} is in no file, and the VM could not import it",
            "put it in a module of its own; in a notebook, begin its cell with "
            "%%writefile my_module.py and import it from there",
        )
    return Path(name).resolve()
