"""The reference tables: run again and compared, or written anew.

    python tests/reference.py [NAME ...]           # run and compare, change nothing
    python tests/reference.py --write [NAME ...]   # run and put what came out in their place

Without names it is every folder of ``results/reference``; ``--write`` with the name of another
scenario adds one. What is compared is every byte of ``table.csv``, so any change of a number is
seen; exit status 1 when there is one, or when a run ends with another verdict than it should.
"""

from __future__ import annotations

import argparse
import difflib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from geokv.paths import CHECKOUT
from geokv.scenario import load_scenario

REFERENCE = CHECKOUT / "results" / "reference"
FAIL_ON_PURPOSE = ("distance_pagewise",)
"""Scenarios that are there to show that a run can fail."""

_SHOWN = 40
"""Lines of a difference that are printed; the rest is counted."""


def names() -> list[str]:
    """What there is a reference of, in the order of the alphabet."""
    return sorted(path.name for path in REFERENCE.iterdir() if path.is_dir())


def run(name: str, out: Path) -> str:
    """Run a shipped scenario into ``out``; what is wrong with its end, or nothing."""
    command = (sys.executable, "-m", "geokv", "run", name, "--out", str(out))
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    expected = 1 if name in FAIL_ON_PURPOSE else 0
    if done.returncode == expected:
        return ""
    tail = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
    return f"ended with {done.returncode}, not {expected}\n{tail}"


def difference(reference: Path, out: Path) -> list[str]:
    """Lines of ``table.csv`` that are not those of the reference, as a unified difference."""
    texts = [
        (folder / "table.csv").read_text(encoding="utf-8").splitlines()
        for folder in (reference, out)
    ]
    return list(difflib.unified_diff(*texts, "reference", "this run", n=0, lineterm=""))


def write(reference: Path, out: Path) -> None:
    """Replace every file of the reference by the run's; a new one gets scenario, table, figures."""
    if reference.exists():
        kept = [path.name for path in reference.iterdir()]
    else:
        reference.mkdir(parents=True)
        kept = ["scenario.yaml", "table.csv"]
        kept += [f"{figure.name}.svg" for figure in load_scenario(reference.name).figures]
    for name in kept:
        source = out / "plots" / name if name.endswith(".svg") else out / name
        shutil.copyfile(source, reference / name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the reference scenarios again.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="replace the reference")
    asked = parser.parse_args()
    wrong = 0
    for name in asked.names or names():
        print(f"== {name}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / name
            if problem := run(name, out):
                print(problem)
                wrong += 1
            elif asked.write:
                write(REFERENCE / name, out)
                print("written")
            elif lines := difference(REFERENCE / name, out):
                print("\n".join(lines[:_SHOWN]))
                if len(lines) > _SHOWN:
                    print(f"... and {len(lines) - _SHOWN} lines more")
                wrong += 1
            else:
                print("the same, byte for byte")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
