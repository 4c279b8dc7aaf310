"""The reference tables: run again and compared, or written anew.

    python tests/reference.py [NAME ...]           # run and compare, change nothing
    python tests/reference.py --write [NAME ...]   # run and put what came out in their place
    python tests/reference.py --runs DIR           # keep run folders; what is there is reduced anew

Without names it is every shipped scenario and drill. What is compared is every byte of the table
and of each figure that is kept beside it, so any change of a number is seen; exit status 1 when
there is one, or when a run ends with another verdict than it should.
"""

from __future__ import annotations

import argparse
import difflib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geokv.errors import GeokvError
from geokv.paths import CHECKOUT
from geokv.report.run_folder import write_all
from geokv.scenario import Scenario, load_scenario, read_back

REFERENCE = CHECKOUT / "results" / "reference"
SCENARIOS = CHECKOUT / "scenarios"
DRILLS = "drills/"
FAIL_ON_PURPOSE = ("distance_pagewise",)
"""Scenarios that are there to show that a run can fail."""
PLAYED = ("live",)
"""Scenarios that somebody plays with while they run: they have no table to compare."""

_SHOWN = 40
"""Lines of a difference that are printed; the rest is counted."""


def names() -> list[str]:
    """All there is a reference of: the shipped scenarios, then ``drills/…``."""
    measured = {path.stem for path in SCENARIOS.glob("*.yaml")} - set(PLAYED)
    drilled = (path.stem for path in (SCENARIOS / "drills").glob("*.yaml"))
    return [*sorted(measured), *sorted(DRILLS + name for name in drilled)]


def path_of(name: str) -> Path:
    """Its YAML file."""
    return SCENARIOS / f"{name}.yaml"


def command(name: str) -> str:
    """What a reader types for it."""
    verb, shown = ("drill", name.removeprefix(DRILLS)) if name.startswith(DRILLS) else ("run", name)
    return f"geokv {verb} {shown}"


def run(asked: list[str], runs: Path) -> Iterator[tuple[str, str]]:
    """Run what ``runs`` does not hold yet, drills side by side: (name, what went wrong or "").

    A run folder that is there is reduced to its tables anew.
    """
    wanted = [name for name in asked if not (runs / name).exists()]
    drills = [name for name in wanted if name.startswith(DRILLS)]
    for name in asked:
        if name in wanted and name not in drills:
            _geokv("run", name, "--out", str(runs / name))
        elif drills and name in drills:
            _geokv(
                "drill",
                *(each.removeprefix(DRILLS) for each in drills),
                "--out",
                str(runs / DRILLS),
            )
            drills = []
        yield name, _ended(name, runs / name)


def _geokv(*arguments: str) -> None:
    subprocess.run((sys.executable, "-m", "geokv", *arguments), cwd=CHECKOUT, capture_output=True)


def _ended(name: str, folder: Path) -> str:
    asked = load_scenario(str(path_of(name)))
    try:
        if _set_up(read_back(folder / "scenario.yaml")) != _set_up(asked):
            return f"is there already, of a scenario that was another: remove {folder}"
        summary = write_all(folder)
    except GeokvError as error:
        return f"did not come to its end: {error}; see {folder}/log.txt"
    expected = "fail" if name in FAIL_ON_PURPOSE else "pass"
    if summary["verdict"] == expected:
        return ""
    return f"ended with {summary['verdict']}, not {expected}: " + "; ".join(summary["reasons"])


def _set_up(scenario: Scenario) -> dict[str, Any]:
    """But for its VMs: side by side, each drill has one for all its cells."""
    return {key: value for key, value in scenario.resolved().items() if key != "vm"}


def difference(reference: Path, folder: Path) -> list[str]:
    """Lines that are not those of the reference, as a unified difference: of its table, and of
    figures, which are drawn of the same numbers, where the table is the same."""
    if not (reference / "table.csv").exists():
        return [f"{reference}: there is none yet; --write makes it"]
    kept = sorted(path.name for path in reference.iterdir() if path.name != "scenario.yaml")
    for name in sorted(kept, key=lambda name: name != "table.csv"):
        texts = [
            path.read_text(encoding="utf-8").splitlines()
            for path in (reference / name, made(folder, name))
        ]
        told = (f"reference {name}", f"this run's {name}")
        if lines := list(difflib.unified_diff(*texts, *told, n=0, lineterm="")):
            return lines
    return []


def made(folder: Path, name: str) -> Path:
    """Where a run folder has what the reference keeps under this name."""
    return folder / "plots" / name if name.endswith(".svg") else folder / name


def write(reference: Path, folder: Path) -> None:
    """Replace every file of the reference by the run's; a new one gets scenario, table, figures."""
    if reference.exists():
        kept = [path.name for path in reference.iterdir()]
    else:
        reference.mkdir(parents=True)
        kept = ["scenario.yaml", "table.csv"]
        figures = load_scenario(str(folder / "scenario.yaml")).figures
        kept += [f"{figure.name}.svg" for figure in figures]
    for name in kept:
        shutil.copyfile(made(folder, name), reference / name)


def index() -> str:
    """The list of commands for the folder's README."""
    rows = [f"| [{name}]({name}/table.csv) | `{command(name)}` |" for name in names()]
    by_hand = ", ".join(f"`{name}`" for name in PLAYED)
    played = f"There is none of {by_hand}: it is played by hand while it runs."
    return "\n".join(["| table | command |", "| --- | --- |", *rows, "", played])


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the reference scenarios again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="distance_ttft, drills/link-cut …")
    parser.add_argument("--write", action="store_true", help="replace the reference")
    parser.add_argument("--runs", type=Path, help="where run folders are kept, and looked for")
    parser.add_argument("--index", action="store_true", help="print the list of commands and end")
    asked = parser.parse_args()
    if asked.index:
        print(index())
        return
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        runs = asked.runs or Path(folder)
        for name, problem in run(asked.names or names(), runs):
            print(f"== {name}", flush=True)
            if problem:
                print(problem)
                wrong += 1
            elif asked.write:
                write(REFERENCE / name, runs / name)
                print("written")
            elif lines := difference(REFERENCE / name, runs / name):
                print("\n".join(lines[:_SHOWN]))
                if len(lines) > _SHOWN:
                    print(f"... and {len(lines) - _SHOWN} lines more")
                wrong += 1
            else:
                print("the same, byte for byte")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
