"""What else lies in the run folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Links

FILES = {
    "sheet.en.html": "the drill sheet: steps, promises, control",
    "sheet.ja.html": "the drill sheet in Japanese",
    "table.csv": "a row per cell, all numbers",
    "table.md": "the table for people",
    "table.tex": "the table for LaTeX (booktabs)",
    "report.md": "this page as Markdown",
    "requests.parquet": "a row per request, spans as columns",
    "links.json": "every check of every link",
    "summary.json": "everything said here, for programs",
    "history.jsonl": "every block operation, in order of time",
    "trace.jsonl": "every request, in Mooncake's line format, to be replayed",
    "scenario.yaml": "the scenario with every name resolved",
    "manifest.json": "versions, kernel, clock, seed, the whole GPU profile",
    "log.txt": "every step of the run",
}
_OF_FORMAT = {"report.md": "md"}
"""Written together with the page, so not there yet when it is made."""


def files_section(run_dir: Path, formats: Collection[str]) -> Section:
    """Links that work where the page lies in its run folder."""
    there = [
        (name, said)
        for name, said in FILES.items()
        if _OF_FORMAT.get(name) in formats or (run_dir / name).is_file()
    ]
    return Section("files", "Files beside this page", [Links(there)])
