"""The table of a run on a terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geokv.report import words
from geokv.report.answers import Answer, answers
from geokv.report.differences import differences_in_short
from geokv.report.drill_console import drill_parts, judged
from geokv.report.pivot import Pivot, pivots

WIDTH_COLUMNS = 120
_ROOMY = 3
"""With more swept settings than this a row has no room for all it could say."""
_VERDICT_STYLES = {"pass": "bold green", "fail": "bold red"}


def print_run(summary: dict[str, Any], console: Console | None = None) -> None:
    """Print header, table, judged lines and verdict; fits 110 columns but for extreme numbers.

    Without a console, one of ``table_console`` is used.
    """
    (console or table_console()).print(render(summary))


def table_console() -> Console:
    """A console for tables: a pipe or a file gets 120 columns, a terminal keeps its own."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, WIDTH_COLUMNS))


def render(summary: dict[str, Any]) -> RenderableType:
    """What ``print_run`` prints, for a caller that lays it out itself."""
    scenario = summary["scenario"]
    title = [Text(scenario["title"], style="bold"), Text(scenario["question"], style="italic")]
    if summary.get("kind") == "drill":
        tables = [_pivot(pivot) for pivot in pivots(summary)]
        shown = drill_parts(summary, tables)
        return Group(*title, *shown, *_warnings(summary), _verdict(summary))
    parts: list[RenderableType] = [
        *title,
        *(Text(line, style="dim") for line in words.header(summary)),
        _table(summary),
    ]
    parts += [_pivot(pivot) for pivot in pivots(summary)]
    legend = "TTFT: median · change: of the gain, vs 0 km · proxy J: energy per request"
    if words.other_settings(summary):
        legend = (
            "TTFT, fetch: median · good: payload / fetch · RTTs paid: fetch less bytes / rate · "
            "form: fetch against the closed form"
        )
    if any(cell["out_of_range"] for cell in summary["cells"]):
        legend += " · *: out of range"
    parts.append(Text(legend, style="dim"))
    parts += [Text(said, style="dim") for said in differences_in_short(summary)]
    if replies := answers(summary):
        parts.append(Padding(_answers(replies), (1, 0, 0, 0)))
    parts.append(Padding(judged(summary), (1, 0, 0, 0)))
    parts += [*_warnings(summary), _verdict(summary)]
    return Group(*parts)


def _warnings(summary: dict[str, Any]) -> list[Text]:
    return [Text(f"! {said}", style="yellow") for said in summary["warnings"]]


def _table(summary: dict[str, Any]) -> Table:
    arms = [arm for arm in words.ARM_TITLES if arm.replace("_", "-") in summary["ran"]["arms"]]
    others = words.other_settings(summary)
    if others:
        return _sweep_table(summary, arms, others)
    titles = ["\nkm", "RTT ms\nasked", "\nseen"]
    titles += _arm_titles("TTFT ms", arms)
    titles += ["gain\n%", "change\n%", "bound\nms", "ratio\nto it", "\nwrong", "GiB\nmoved"]
    titles += _arm_titles("proxy J", arms)
    table = _grid(titles)
    for cell in summary["cells"]:
        remote = cell["arms"].get("remote_hit", {})
        _add(
            table,
            cell,
            words.km(cell),
            words.number(cell["rtt_asked_ms"], 3),
            words.number(cell["rtt_measured_ms"], 3),
            *(words.ttft(cell, arm) for arm in arms),
            words.percent(cell["gain"]).removesuffix(" %"),
            words.change(cell).removesuffix(" %"),
            words.ms(remote.get("bound_ms")),
            words.ratio(remote.get("ratio_to_bound")),
            _wrong(cell),
            words.gib(cell),
            *(words.joules(cell, arm) for arm in arms),
        )
    return table


def _sweep_table(summary: dict[str, Any], arms: list[str], others: list[str]) -> Table:
    """Where more than distance changes: what a fetch does, in place of energy and bounds."""
    titles = [words.short_title(path) for path in others]
    roomy = len(others) <= _ROOMY
    titles += ["\nkm", "RTT\nms"] if roomy else ["\nkm"]
    titles += _arm_titles("TTFT ms", arms)
    titles += ["gain\n%", "fetch\nms", "good\nGb/s", "\nchunks", "RTTs\npaid", "form\n%"]
    titles += ["\nwrong", "GiB\nmoved"] if roomy else ["\nwrong"]
    table = _grid(titles)
    for cell in summary["cells"]:
        _add(
            table,
            cell,
            *(words.setting(cell, path) for path in others),
            words.km(cell),
            *([words.number(cell["rtt_asked_ms"], 1)] if roomy else []),
            *(words.ttft(cell, arm) for arm in arms),
            words.percent(cell["gain"]).removesuffix(" %"),
            *words.fetching(cell),
            _wrong(cell),
            *([words.gib(cell)] if roomy else []),
        )
    return table


def _arm_titles(what: str, arms: list[str]) -> list[str]:
    """A column per arm under one heading."""
    short = {"recompute": "recomp.", "local_hit": "local", "remote_hit": "remote"}
    return [f"{what if arm == arms[0] else ''}\n{short[arm]}" for arm in arms]


def _grid(titles: list[str]) -> Table:
    # One space between columns is all that fits sixteen of them into 110.
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("\nvalid", justify="center", no_wrap=True)
    return table


def _add(table: Table, cell: dict[str, Any], *shown: RenderableType) -> None:
    mark = "✓" if cell["valid"] else Text("✗", style="bold red")
    style = "dim" if cell["out_of_range"] else "" if cell["valid"] else "red"
    table.add_row(*shown, mark, style=style)


def _wrong(cell: dict[str, Any]) -> Text:
    return Text(words.wrong(cell), style="bold red" if cell["wrong"] else "")


def _pivot(pivot: Pivot) -> Group:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in pivot.head:
        table.add_column(title.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for row in pivot.rows:
        table.add_row(*row)
    return Group(Text(f"\n{pivot.title}", style="bold"), table)


def _answers(shown: list[Answer]) -> Table:
    table = Table.grid(padding=(0, 1))
    for one in shown:
        table.add_row(Text("Q", style="bold"), Text(one.question, style="bold"))
        table.add_row("", Text(one.answer))
        table.add_row("", Text(f"fetched: {one.fetched}", style="green" if one.ok else "bold red"))
        for said in one.controls:
            table.add_row("", Text(said, style="dim"))
    return table


def _verdict(summary: dict[str, Any]) -> Text:
    word = summary["verdict"]
    text = Text("\nverdict: ")
    text.append(word, style=_VERDICT_STYLES.get(word, "bold yellow"))
    for reason in summary["reasons"]:
        text.append(f"\n  {reason}")
    return text
