"""Run a scenario, and the results of a run that has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geokv import foreign
from geokv.api.html import page, verdict
from geokv.api.scenario import Scenario
from geokv.errors import ConfigError
from geokv.report.run_folder import read_summary

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = ("km", "rtt_measured_ms", "recompute_ttft_p50_ms", "local_hit_ttft_p50_ms",
          "remote_hit_ttft_p50_ms", "gain", "wrong", "valid", "label", "verdict", "ttft_p50_ms",
          "ttft_p99_ms", "hit_rate")  # fmt: skip

Progress = Callable[[dict[str, Any]], None]


class Picture:
    """One drawing of a run; a notebook shows it.

    Attributes:
        path: its SVG file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def _repr_svg_(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Picture {self.path}>"


class Run:
    """A run that has ended. Frames are read from its folder when they are first asked for.

    Attributes:
        folder: the run folder.
        summary: ``summary.json``: everything the run says, as plain data.
    """

    def __init__(self, folder: Path, summary: dict[str, Any]) -> None:
        self.folder = folder
        self.summary = summary

    @property
    def verdict(self) -> str:
        """``pass``, ``fail``, ``invalid`` or ``unknown``."""
        return str(self.summary["verdict"])

    @property
    def reasons(self) -> list[str]:
        """Why it is no pass; empty when it is."""
        return list(self.summary["reasons"])

    @property
    def is_drill(self) -> bool:
        """Whether it had a stream of requests, faults and checkers, and not arms."""
        return self.summary.get("kind") == "drill"

    @cached_property
    def scenario(self) -> Scenario:
        """What ran, resolved; run it again with ``run(old.scenario)``.

        Raises:
            ConfigError: it names code or a model folder that is not here any more.
        """
        return Scenario(self.folder / "scenario.yaml")

    @cached_property
    def table(self) -> pd.DataFrame:
        """``table.csv``: a row per cell. Columns are in
        docs/scenarios.md#columns-of-tablecsv; flags are booleans, numbers numbers, and what
        there is no number for is missing."""
        from geokv.api.frames import read_table

        return read_table(self.folder / "table.csv")

    @cached_property
    def requests(self) -> pd.DataFrame:
        """``requests.parquet``: a row per request, of a drill with the ``fate`` of each.
        Columns are in docs/scenarios.md#columns-of-requestsparquet; times are integers of ns."""
        from geokv.api.frames import read_requests

        return read_requests(self.folder / "requests.parquet")

    @cached_property
    def history(self) -> pd.DataFrame:
        """``history.jsonl``: a row per event, what every site did to every chunk
        (docs/history.md)."""
        from geokv.api.frames import read_history

        return read_history(self.folder)

    @cached_property
    def links(self) -> pd.DataFrame:
        """``links.json``: a row per check of a link, RTT and goodput as asked and as measured."""
        from geokv.api.frames import read_links

        return read_links(self.folder / "links.json")

    @cached_property
    def expectations(self) -> pd.DataFrame:
        """A row per judged line: ``name``, ``ok`` (missing: not tested), and what was ``said``."""
        import pandas as pd

        frame = pd.DataFrame(self.summary["expectations"], columns=["name", "ok", "said"])
        return frame.astype({"ok": "boolean"})

    @property
    def plots(self) -> dict[str, Picture]:
        """Name → drawing."""
        return {path.stem: Picture(path) for path in sorted(self.folder.glob("plots/*.svg"))}

    def __repr__(self) -> str:
        return f"<Run {self.summary['scenario']['name']}: {self.verdict}, {self.folder}>"

    def _repr_html_(self) -> str:
        """For notebooks: the verdict and a small table."""
        told = self.summary["scenario"]
        swept = [name for name in self.table.columns if name in self._titles()]
        shown = [*swept, *(name for name in _SHOWN if name in self.table and name not in swept)]
        table = self.table[shown].to_html(index=False, na_rep="–", border=0)
        return page(told["title"], told["question"], table, verdict(self.verdict, self.reasons))

    def _titles(self) -> set[str]:
        return {title for cell in self.summary["cells"] for title in cell["settings"]}


def run(
    scenario: Scenario | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    pace: str | float | None = None,
    live: bool | None = None,
    progress: bool | Progress = True,
    root: str | Path = "results",
) -> Run:
    """Run a scenario to its verdict. Takes as long as it takes; a failed verdict is a result.

    Works in a notebook. To keep an event loop going meanwhile: ``await asyncio.to_thread(run, …)``.
    To go on at once and take part in the run: ``geokv.start``.

    Args:
        scenario: a ``Scenario``, or what makes one.
        out: the run folder to make, new or empty; ``root/NAME/STAMP-HASH`` when not given.
        pace: virtual seconds per real second, at most: ``"1x"``, or a number from 0.01 to 1000;
            as fast as it goes when not given (docs/live.md#pace).
        live: samples among the events, and commands to a drill; when not given, where there is
            a pace.
        progress: True for a live view on a terminal and lines on standard error anywhere else,
            False for nothing, or a function that is called with every step
            (``{"event": "cell", "label": …}``).
        root: where run folders are made.

    Raises:
        ConfigError: the scenario, ``out`` or ``pace`` cannot be used; nothing is made.
        GeokvError: the VM, the lab or a site failed; the run folder keeps ``log.txt``.
    """
    wanted = scenario if isinstance(scenario, Scenario) else Scenario(scenario)
    return carry(wanted, out, progress, root, pace=pace, live=live)


def carry(
    scenario: Scenario,
    out: str | Path | None,
    progress: bool | Progress,
    root: str | Path,
    also: Progress = lambda step: None,
    **how: Any,
) -> Run:
    """Carry a run from its folder to its verdict, and show it meanwhile.

    Args:
        also: called with every step, whatever ``progress`` is.
        how: the rest of what ``run_scenario`` takes; errors are as there.

    Raises:
        ConfigError: it is code of the scenario's that asks for a run, while it is imported.
    """
    if module := foreign.importing():
        raise ConfigError(
            f"{module} runs a scenario while it is imported for the code in it",
            'put what runs under `if __name__ == "__main__":`',
        )
    from rich.console import Console

    from geokv.report.progress.watch import watch_run
    from geokv.runner import run_scenario

    target = Path(out) if out is not None else None
    with watch_run(scenario.checked, Console(stderr=True), quiet=progress is not True) as watch:
        show = progress if callable(progress) else watch.take

        def take(step: dict[str, Any]) -> None:
            also(step)
            show(step)

        folder, summary = run_scenario(scenario.checked, target, take, Path(root), **how)
    return Run(folder, summary)


def load_run(folder: str | Path) -> Run:
    """The results of a finished run.

    Args:
        folder: its run folder, as ``results/distance_ttft/<stamp>-<hash>``.

    Raises:
        ConfigError: no such folder.
        RunError: the run did not finish, or what is there is no run.
    """
    path = Path(folder)
    return Run(path, read_summary(path))
