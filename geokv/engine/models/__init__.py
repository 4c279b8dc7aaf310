"""Models with trained weights that are known by name: where they come from, how they get here."""

from geokv.engine.models.catalogue import CATALOGUE, Packaged, fetched, find, require

__all__ = ["CATALOGUE", "Packaged", "fetched", "find", "require"]
