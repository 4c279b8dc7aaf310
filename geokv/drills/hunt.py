"""One drill over many seeds; what fails is shrunk to the least that still does."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from geokv.drills.find import load_drill, without_control
from geokv.drills.shrink import Drill, shrink
from geokv.drills.suite import Ended, Task, Watch, run_tasks
from geokv.drills.watch import STYLES, watcher
from geokv.ending import code_of, name_of, stop_of
from geokv.errors import ConfigError
from geokv.report.disk import saving, write_text
from geokv.report.sheet import figures
from geokv.report.sheet.shown import shown_ms
from geokv.report.sheet.words import Words
from geokv.scenario import Scenario, load_scenario

MOST_RUNS = 60
"""Real runs that one seed may cost to shrink; the least found until then is kept."""
SHRUNK = "shrunk.yaml"
SEEDS = "seeds.csv"


@dataclass
class Hunt:
    """What came of it.

    Attributes:
        shrunk: seed → the file that still fails, and how many runs it took.
        stopped: exit code of the signal that stopped it, 0 when none did; what had been found
            until then is kept.
    """

    name: str
    folder: Path
    seeds: list[int]
    ended: list[Ended]
    shrunk: dict[int, tuple[Path, int]] = field(default_factory=dict)
    stopped: int = 0


def hunt(
    path: Path,
    overrides: Sequence[str],
    seeds: Sequence[int],
    jobs: int,
    out: Path | None,
    console: Console,
) -> Hunt:
    """Run a drill once per seed, keep what does not pass, shrink what fails.

    Args:
        out: where the folder of the hunt is made; None is ``results/<drill>``.
        console: for progress.

    Raises:
        ConfigError: the drill is wrong; nothing ran.
    """
    changes = [*overrides, *without_control(path)]
    scenarios = [_one_vm(load_drill(path, [*changes, f"seed={seed}"])) for seed in seeds]
    name = scenarios[0].name
    folder = _folder(out or Path("results") / name)
    tasks = [
        Task(f"{name} seed {seed}", scenario, folder / f"seed-{seed}", pages="unless-pass")
        for seed, scenario in zip(seeds, scenarios, strict=True)
    ]
    with watcher(tasks, console, steps=False) as watch:
        ended = run_tasks(tasks, jobs, _Keeper(watch, folder, seeds))
    found = Hunt(name, folder, list(seeds), ended)
    write_text(folder / SEEDS, to_csv(dict(zip(seeds, ended, strict=True))))
    found.stopped = max(one.stopped for one in ended)
    for seed, one in zip(seeds, ended, strict=True):
        if one.verdict == "fail" and one.run_dir is not None and not found.stopped:
            console.print(Text(f"shrinking {one.task.name}"), soft_wrap=True)
            _shrink(found, seed, one, jobs, console)
    return found


class _Keeper:
    """Passes on what happens, takes the folder of a seed that passed away, and writes down what
    has come out: a hunt is long, and whatever ends it leaves that."""

    def __init__(self, watch: Watch, folder: Path, seeds: Sequence[int]) -> None:
        self._watch, self._folder, self._seeds = watch, folder, seeds
        self._ended: dict[int, Ended] = {}
        self.begun = watch.begun
        self.step = watch.step

    def ended(self, number: int, ended: Ended) -> None:
        if ended.verdict == "pass" and ended.run_dir is not None:
            shutil.rmtree(ended.run_dir)
        self._ended[self._seeds[number]] = ended
        write_text(self._folder / SEEDS, to_csv(self._ended))
        self._watch.ended(number, ended)


def broken(summary: dict[str, Any]) -> set[str]:
    """Names of the judged lines that are false."""
    return {line["name"] for line in summary["expectations"] if line["ok"] is False}


def _shrink(found: Hunt, seed: int, failed: Ended, jobs: int, console: Console) -> None:
    """Write ``shrunk.yaml`` and ``shrink.txt`` into the run folder of a seed."""
    assert failed.summary is not None and failed.run_dir is not None, "it failed"
    runs = _Runs(broken(failed.summary), found.folder / f"shrink-{seed}", jobs, console)
    runs.best = failed.task.scenario.resolved()
    try:
        least = shrink(runs.best, runs.first_failing)
    except KeyboardInterrupt as error:
        least, found.stopped = runs.best, code_of(error)
        runs.said.append(f"stopped by {name_of(error)}")
    file = failed.run_dir / SHRUNK
    text = yaml.safe_dump(least, sort_keys=False, allow_unicode=True, width=96)
    write_text(file, text)
    write_text(failed.run_dir / "shrink.txt", "".join(f"{line}\n" for line in runs.said))
    shutil.rmtree(runs.folder, ignore_errors=True)
    found.shrunk[seed] = (file, runs.count)


class _Runs:
    """Candidates, each tried by a real run: does it still break a line that was broken?"""

    def __init__(self, lines: set[str], folder: Path, jobs: int, console: Console) -> None:
        self.folder = folder
        self.count = 0
        self.said: list[str] = []
        self.best: Drill = {}
        self._lines = lines
        self._jobs = jobs
        self._console = console

    def first_failing(self, drills: Sequence[Drill]) -> int | None:
        """As ``shrink.FirstFailing``; nothing fails any more once the runs are used up."""
        valid = [
            (place, scenario)
            for place, drill in enumerate(drills)
            if (scenario := _valid(drill)) is not None
        ]
        for start in range(0, len(valid), self._jobs):
            batch = valid[start : start + self._jobs]
            if self.count + len(batch) > MOST_RUNS:
                self.said.append(f"stopped after {self.count} runs")
                return None
            for (place, _), ended in zip(batch, self._run(batch), strict=True):
                if ended.stopped:
                    raise stop_of(ended.stopped)
                if ended.summary is not None and broken(ended.summary) & self._lines:
                    self.best = drills[place]
                    return place
        return None

    def _run(self, batch: Sequence[tuple[int, Scenario]]) -> list[Ended]:
        tasks = []
        for _, scenario in batch:
            self.count += 1
            out = self.folder / f"run-{self.count}"
            name = f"{size_of(scenario)} (run {self.count})"
            tasks.append(Task(name, scenario, out, pages="never"))
        with watcher(tasks, self._console, steps=False) as watch:
            ended = run_tasks(tasks, self._jobs, watch)
        for one in ended:
            lines = sorted(broken(one.summary) & self._lines) if one.summary else []
            what = f"breaks {', '.join(lines)}" if lines else one.verdict
            self.said.append(f"{one.task.name}: {what}")
            if one.run_dir is not None:
                shutil.rmtree(one.run_dir, ignore_errors=True)
        return ended


def size_of(scenario: Scenario) -> str:
    """What of a drill is left."""
    names = ", ".join(event.title for event in scenario.timeline) or "no fault"
    return f"{scenario.workload.requests} requests, {names}"


def _valid(drill: Drill) -> Scenario | None:
    """None where an event waits for one that is no longer there, and the like."""
    try:
        return load_scenario(drill)
    except ConfigError:
        return None


def _one_vm(scenario: Scenario) -> Scenario:
    return scenario.model_copy(update={"vm": scenario.vm.model_copy(update={"jobs": 1})})


def _folder(parent: Path) -> Path:
    """A new folder ``hunt-<stamp>``; the stamp is wall clock, as that of a run."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    with saving(parent):
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            folder = parent / (f"hunt-{stamp}" if number == 1 else f"hunt-{stamp}-{number}")
            if not folder.exists():
                folder.mkdir()
                return folder
    raise ConfigError(f"{parent}: a thousand hunts began within one second")


_SUMS = ("asked", "answered", "fetches", "lost", "wrong", "hung", "leaked")
COLUMNS = ("seed", "verdict", *_SUMS, "broken", "real_s")
"""``fetches`` of other sites, and how many of them a fault cost: a hunt whose faults meet none
has not looked at much."""


def counts(ended: Ended) -> dict[str, Any]:
    """Of one run, by the names of ``COLUMNS`` but the first."""
    row: dict[str, Any] = {"verdict": ended.verdict, "real_s": f"{ended.real_s:.1f}"}
    summary = ended.summary
    if summary is None:
        return row
    cells = figures.normal_cells(summary)
    lines = broken(summary)
    return row | {
        "asked": sum(cell["requests"] for cell in cells),
        "answered": sum(cell["answered"] for cell in cells),
        "fetches": sum(sum(cell["fates"]["fetches"].values()) for cell in cells),
        "lost": figures.count_of(summary, "fetches", "retried", "recomputed", "failed"),
        "wrong": figures.wrong(summary),
        "hung": figures.count_of(summary, "requests", "unanswered"),
        "leaked": int("leaked" in lines),
        "broken": " ".join(sorted(lines)),
    }


def to_csv(ended: Mapping[int, Ended]) -> str:
    """``seeds.csv``: a row per seed, in their order; empty where there is no number."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for seed in sorted(ended):
        writer.writerow({"seed": seed, **counts(ended[seed])})
    return out.getvalue()


def print_hunt(found: Hunt, words: Words, console: Console) -> None:
    """Sums over all seeds; each that did not pass, with the command that repeats it exactly."""
    rows = [counts(ended) for ended in found.ended]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in ("drill", "seeds", "pass", *_SUMS):
        table.add_column(words.text[title], justify="left" if title == "drill" else "right")
    for title in ("worst_ttft", "real"):
        table.add_column(words.text[title], justify="right")
    slowest = [
        ms
        for ended in found.ended
        if ended.summary is not None and (ms := figures.worst_ttft_ms(ended.summary)) is not None
    ]
    sums = [str(sum(int(row.get(name) or 0) for row in rows)) for name in _SUMS]
    passed = sum(row["verdict"] == "pass" for row in rows)
    real_s = sum(ended.real_s for ended in found.ended)
    table.add_row(
        found.name, str(len(rows)), str(passed), *sums, shown_ms(max(slowest, default=None)),
        f"{real_s:.0f}",
    )  # fmt: skip
    console.print(table)
    for seed, ended in zip(found.seeds, found.ended, strict=True):
        if ended.verdict == "pass":
            continue
        text = Text(f"{words.text['seed']} {seed}: ")
        text.append(ended.verdict, style=STYLES.get(ended.verdict, "yellow"))
        why = ended.summary["reasons"][0] if ended.summary else ended.error
        text.append(f" {why}" if why else "")
        if ended.run_dir is not None and ended.run_dir.is_dir():
            text.append(f"\n  geokv run {ended.run_dir}/scenario.yaml")
        if seed in found.shrunk:
            file, runs = found.shrunk[seed]
            left = size_of(load_scenario(file))
            said = words.text["shrunk"].format(runs=runs, left=left)
            text.append(f"\n  geokv run {file}    {said}")
        console.print(text, soft_wrap=True)
    console.print(Text(f"{found.folder / SEEDS}", style="dim"), soft_wrap=True)
