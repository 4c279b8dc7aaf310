"""A fault in a line as people type it: ``link-cut a-b for 5s``, ``slow-gpu b factor=4``."""

from __future__ import annotations

import shlex
from typing import Any, get_args

import yaml

from geokv.errors import ConfigError
from geokv.scenario.paths import suggest
from geokv.scenario.timeline import Event, OurEvent

_TARGETS = ("link", "site", "tenant", "to")
"""What a word without a name is, the first of these that the fault has."""
_COMMON = ("fault", "expect")


def event_kinds() -> dict[str, type[Event]]:
    """Kind of fault → its model; of our own kinds, as only those have keys that are known here."""
    union = get_args(OurEvent)[0]
    return {get_args(one.model_fields["fault"].annotation)[0]: one for one in get_args(union)}


def keys_of(kind: str) -> list[str]:
    """What can be said of a fault, as it is written; its target first."""
    fields = event_kinds()[kind].model_fields
    names = [field.alias or name for name, field in fields.items() if name not in _COMMON]
    own = [name for name in names if name not in ("name", "at", "when", "after")]
    return [*sorted(own, key=lambda name: name not in _TARGETS), "name", "at", "when", "after"]


def parse_fault(text: str) -> dict[str, Any]:
    """The event that a line asks for, as a ``timeline`` has it; values are checked elsewhere.

    The first word is the kind; then come its target, ``KEY VALUE`` and ``KEY=VALUE`` in any order.
    Values are read as YAML.

    Raises:
        ConfigError: an unknown kind or key, or a word that belongs to nothing.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{text!r}: {error}") from None
    kinds = event_kinds()
    if not words or words[0] not in kinds:
        said = words[0] if words else ""
        raise ConfigError(
            f"no fault is called {said!r}{suggest(said, list(kinds))}",
            f"faults: {', '.join(kinds)}",
        )
    kind, rest = words[0], words[1:]
    keys = keys_of(kind)
    found: dict[str, Any] = {"fault": kind}
    while rest:
        word = rest.pop(0)
        key, equals, value = word.partition("=")
        if equals and key in keys:
            found[key] = _value(value)
        elif word in keys and rest:
            found[word] = _value(rest.pop(0))
        else:
            place = next((key for key in _TARGETS if key in keys and key not in found), None)
            if equals or word in keys or place is None:
                raise ConfigError(
                    f"{kind}: cannot make sense of {word!r}",
                    f"{kind} takes {', '.join(keys)}, each as KEY VALUE or KEY=VALUE",
                )
            found[place] = word
    return found


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
