"""What to run: strict models of the YAML, sweeps, seeded prompts, expectations."""

from geokv.scenario.cells import path_km, path_links
from geokv.scenario.load import find, hash_as_written, load_scenario, read_back
from geokv.scenario.model import Arm, Scenario
from geokv.scenario.sweep import Cell

__all__ = [
    "Arm",
    "Cell",
    "Scenario",
    "find",
    "hash_as_written",
    "load_scenario",
    "path_km",
    "path_links",
    "read_back",
]
