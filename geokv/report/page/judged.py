"""What the verdict stands on: every judged line, and of a drill the proof that it can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.measure.drill.story import stories
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Bullets, Heading, Table
from geokv.report.sheet.judged import control, excerpts, invariants, promises
from geokv.report.sheet.words import words_of
from geokv.scenario import read_back


def judged_section(summary: dict[str, Any], run_dir: Path) -> Section:
    """Each line with what was seen; what is broken comes first."""
    blocks = _drill(summary, run_dir) if summary.get("kind") == "drill" else _lines(summary)
    if summary["warnings"]:
        blocks += [Heading("Warnings", 3), Bullets(summary["warnings"])]
    return Section("judged", "What the verdict stands on", blocks)


def control_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """The same drill with a weakness planted, as its sheet has it; None of a measurement run."""
    if summary.get("kind") != "drill":
        return None
    words, scenario = words_of("en"), read_back(run_dir / "scenario.yaml")
    title = summary["scenario"]["title"]
    blocks = control(summary, scenario, stories(run_dir), words, title)
    return Section("control", words.text["control"], blocks)


def _lines(summary: dict[str, Any]) -> list[Block]:
    order = {False: 0, None: 1, True: 2}
    lines = sorted(summary["expectations"], key=lambda line: order[line["ok"]])
    rows = [[line["name"], line["said"]] for line in lines]
    tones = ["bad" if line["ok"] is False else "" for line in lines]
    marks = [line["ok"] for line in lines]
    return [Table(["line", "what was seen"], rows, marks, tones=tones)]


def _drill(summary: dict[str, Any], run_dir: Path) -> list[Block]:
    words, scenario = words_of("en"), read_back(run_dir / "scenario.yaml")
    blocks = excerpts(summary, words)
    if promised := promises(summary, scenario, words):
        blocks += [Heading(words.text["expected"], 3), *promised]
    return [*blocks, Heading(words.text["invariants"], 3), *invariants(summary, words)]
