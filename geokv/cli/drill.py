"""``geokv drill``: drills by name, all of them, or one over many seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

if TYPE_CHECKING:
    from geokv.drills.suite import Task
    from geokv.scenario import Scenario


def drill(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|all|list|PATH…",
            help="Names from scenarios/drills, YAML files, folders of them, or all; "
            "list shows what there is.",
        ),
    ],
    repeat: Annotated[
        int | None,
        typer.Option(min=1, help="Hunt: run with so many seeds, and shrink what fails."),
    ] = None,
    seed_from: Annotated[int, typer.Option(min=0, help="First seed of a hunt.")] = 1,
    lang: Annotated[
        Literal["en", "ja"], typer.Option(help="Language of the table and of the sheet named.")
    ] = "en",
    no_control: Annotated[
        bool, typer.Option("--no-control", help="Leave the negative controls away.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, help="VMs at once; as many as processors.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for run folders; default results/.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change one value in each drill."),
    ] = None,
) -> None:
    """Run drills side by side, each in a VM of its own, and print one table.

    A drill that breaks ends no other. Each leaves a run folder with its sheet,
    in English and Japanese. Ctrl-C, or SIGTERM, ends all VMs and prints what was done.

    With --repeat each drill is run with one seed after another, without its
    control. Of a seed that fails the run folder is kept, and its timeline is
    shrunk by real runs to shrunk.yaml, the least that still fails.

    The exit code is that of the worst verdict: 1 fail, 3 invalid, 4 unknown or
    could not run, 0 all pass; 130 after Ctrl-C, 143 after SIGTERM.

    Examples:

      geokv drill link-cut

      geokv drill all --lang ja

      geokv drill chaos --repeat 50 --seed-from 1
    """
    from geokv.drills.find import find_drills, load_drill, without_control
    from geokv.drills.hunt import hunt, print_hunt
    from geokv.drills.suite import Task, exit_code, run_tasks
    from geokv.drills.table import print_drills
    from geokv.drills.watch import watcher
    from geokv.report.console import table_console
    from geokv.report.sheet.words import words_of

    words = words_of(lang)
    if names == ["list"]:
        _print_list(lang)
        return
    overrides = list(set_ or [])
    vms = jobs or len(os.sched_getaffinity(0))
    paths = find_drills(names)
    weak = no_control or repeat is not None
    loaded: list[Scenario] = [
        load_drill(path, [*overrides, *(without_control(path) if weak else [])]) for path in paths
    ]
    noise = Console(stderr=True)
    if repeat is not None:
        ended = []
        for path in paths:
            seeds = range(seed_from, seed_from + repeat)
            found = hunt(path, overrides, seeds, vms, out, noise)
            print_hunt(found, words, table_console())
            ended += found.ended
            if found.stopped:
                raise typer.Exit(found.stopped)
        raise typer.Exit(exit_code(ended))
    tasks = [
        Task(scenario.name, scenario, out / scenario.name if out else None)
        for scenario in _shared(loaded, vms)
    ]
    _distinct(tasks)
    with watcher(tasks, noise) as watch:
        ended = run_tasks(tasks, vms, watch)
    print_drills(ended, words, table_console())
    raise typer.Exit(exit_code(ended))


def _shared(scenarios: Sequence[Scenario], vms: int) -> list[Scenario]:
    """Each with as many VMs of its own as it can have when all share ``vms``."""
    each = max(1, vms // len(scenarios))
    return [
        one.model_copy(update={"vm": one.vm.model_copy(update={"jobs": min(each, one.vm.jobs)})})
        for one in scenarios
    ]


def _distinct(tasks: Sequence[Task]) -> None:
    from geokv.errors import ConfigError

    names = [task.name for task in tasks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice and tasks[0].out is not None:
        raise ConfigError(
            f"--out: two drills are called {twice[0]}", "run them apart, or without --out"
        )


def _print_list(lang: Literal["en", "ja"]) -> None:
    from rich import box
    from rich.table import Table

    from geokv.drills.find import load_drill, shipped_drills
    from geokv.drills.table import what_was_done
    from geokv.report.console import table_console
    from geokv.report.sheet.words import words_of

    words = words_of(lang)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("drill", "sheet_title", "what"):
        table.add_column(words.text[name], no_wrap=name == "drill")
    for name, path in shipped_drills().items():
        scenario = load_drill(path)
        own = scenario.translations.get("ja") if lang == "ja" else None
        table.add_row(name, own.title if own else scenario.title, what_was_done(scenario, words))
    table_console().print(table)
