"""Putting something else in the place of a part of a site, which must be there."""

from __future__ import annotations

from typing import Any

from geokv.errors import RunError


def swap(owner: object, name: str, new: Any) -> Any:
    """``owner.name`` is ``new`` from here on; returns what it was.

    Raises:
        RunError: there is no such part any more. A sabotage that changes nothing would
            leave its drill without a control.
    """
    if not hasattr(owner, name):
        what = owner.__name__ if hasattr(owner, "__name__") else type(owner).__name__
        raise RunError(
            f"a sabotage cannot be planted: {what} has no {name!r}",
            "the product has changed; change the sabotage with it",
        )
    old = getattr(owner, name)
    setattr(owner, name, new)
    return old
