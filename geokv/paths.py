"""Folders: the checkout this package runs from, and the user's own."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/geokv``: what can be made again (guest kernel, fetched models)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geokv"


def state_folder() -> Path:
    """``$XDG_STATE_HOME/geokv``: what must outlive a crash (journals of runs)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "geokv"


def models_folder() -> Path:
    """``$GEOKV_MODELS``, or ``models`` in the cache folder: models fetched by name.

    A guest has a home of its own and is given the host's folder by this variable.
    """
    given = os.environ.get("GEOKV_MODELS")
    return Path(given) if given else cache_folder() / "models"
