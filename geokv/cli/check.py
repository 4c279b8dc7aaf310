"""``geokv check``: is every link of a topology what it says?"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def check(
    topology: Annotated[str, typer.Argument(help="A name from topologies/, or a YAML file.")],
    clock: Annotated[str, typer.Option(help="virtual or wall.")] = "virtual",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change one value; can be repeated."),
    ] = None,
    byte_scale: Annotated[int, typer.Option(min=1, help="S: rates are divided by it.")] = 4,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per link.")] = False,
) -> None:
    """Build a lab and measure every link against its plan, by two independent means.

    Ours is a scapy probe train and a TCP burst; the other is ping and iperf3.
    Exit 0 when all agree with the plan, 3 when a link is out of tolerance.

    Examples:

      geokv check pair

      geokv check metro-ring --byte-scale 1

      geokv check pair --clock wall --set links.a-b.rate=1G
    """
    import yaml

    from geokv.errors import ConfigError, LabError
    from geokv.lab.topology import load_topology
    from geokv.report.console import table_console
    from geokv.scenario.cells import topology_mapping
    from geokv.scenario.paths import parse_override, with_value
    from geokv.vm import Job, choose_place
    from geokv.vm.steps import error_of, taker
    from geokv.vm.supervise import run_job

    if clock not in ("virtual", "wall"):
        raise ConfigError(f"--clock: must be virtual or wall, got {clock!r}")
    loaded = load_topology(topology)
    for text in set_ or []:
        path, value = parse_override(text)
        data = with_value({"topology": topology_mapping(loaded)}, path, value)["topology"]
        loaded = load_topology(data)
    place = choose_place("virtual" if clock == "virtual" else "wall")
    rows: list[dict[str, Any]] = []
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(topology_mapping(loaded), file)
        file.flush()
        argv = ("python", "-m", "geokv.coordinator.check", file.name, str(byte_scale), clock)
        with Console(stderr=True).status(f"measuring {len(loaded.links)} link(s)"):
            outcome = run_job(
                place, Job(argv, 4 * 2**30), taker(rows, partial(typer.echo, err=True))
            )
    for row in rows:
        if error := error_of(row, LabError):
            raise error
    if outcome.status:
        tail = "\n".join(f"  | {line}" for line in outcome.errors.splitlines()[-12:])
        raise LabError(f"the check ended early\n{tail}")
    problems = [
        text for row in rows for text in [*row["problems"], *row["second_opinion"]["problems"]]
    ]
    if json_:
        for row in rows:
            typer.echo(json.dumps(row))
    else:
        console = table_console()
        console.print(f"{loaded.name}: {place.kernel_name}, S = {byte_scale}", highlight=False)
        console.print(_table(rows))
        for text in problems:
            console.print(f"[red]✗[/red] {text}", highlight=False)
        if not problems:
            console.print(f"[green]✓[/green] all {len(rows)} link(s) within tolerance")
    raise typer.Exit(3 if problems else 0)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for title in (
        "link",
        "RTT asked",
        "probes",
        "ping",
        "jitter",
        "loss",
        "Gb/s asked",
        "burst →",
        "burst ←",
        "iperf3 →",
        "iperf3 ←",
        "ok",
    ):
        table.add_column(title, justify="left" if title == "link" else "right")
    for row in rows:
        second = row["second_opinion"]
        good = not row["problems"] and not second["problems"]
        table.add_row(
            row["link"],
            _ms(row["rtt_asked_ns"]),
            _ms(row["rtt_measured_ns"]),
            _ms(second["ping"]["rtt_mean_ns"]),
            "–"
            if row["jitter_measured_ns"] is None
            else f"{row['jitter_measured_ns'] / 1e3:.1f} µs",
            _loss(row),
            _gbps(row["goodput_asked_bps"]),
            _gbps(row["goodput_forward_bps"]),
            _gbps(row["goodput_backward_bps"]),
            _gbps(second["forward"]["goodput_bps"]),
            _gbps(second["backward"]["goodput_bps"]),
            "[green]✓[/green]" if good else "[red]✗[/red]",
        )
    return table


def _loss(row: dict[str, Any]) -> str:
    measured = row["loss_measured"]
    return "–" if measured is None else f"{row['loss_asked']:.2%} / {measured:.2%}"


def _ms(value_ns: float | None) -> str:
    return "–" if value_ns is None else f"{value_ns / 1e6:.3f} ms"


def _gbps(value_bps: float | None) -> str:
    return "–" if value_bps is None else f"{value_bps / 1e9:.3f}"
