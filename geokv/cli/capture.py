"""``geokv capture``: what two sites say to each other, as packets."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

LUA = Path(__file__).parents[1] / "cache" / "substrate" / "tcp" / "geokv.lua"


def capture(
    scenario: Annotated[str, typer.Argument(help="A name from scenarios/, or a YAML file.")],
    link: Annotated[str, typer.Option(help="Which link to look at.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="pcap file to write.")],
    cell: Annotated[int, typer.Option(min=0, help="Which cell of the sweep to run.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change one value; can be repeated."),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="On whose side of the link; the first end by default.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All packets, and not only those of KV servers.")
    ] = False,
    limit: Annotated[str, typer.Option(help="Stop writing after so much.")] = "1GiB",
) -> None:
    """Run one cell of a scenario and write the packets of a link to a pcap file.

    The lab is built, run and taken down as by geokv run, in the VM or natively;
    the file is written where you say, with the times of the lab's own clock.
    Capturing costs no virtual time: the cell runs as it does without.

    Prints how many frames of each kind crossed. To read them one by one,
    Wireshark needs the dissector geokv/cache/substrate/tcp/geokv.lua of this installation
    (the last line printed is the command); in Python they are read by
    geokv.cache.substrate.tcp.dissector.read_capture.

    Examples:

      geokv capture smoke --link a-b -o link.pcap

      geokv capture smoke --link a-b --set links.a-b.loss=0.001 -o lossy.pcap
    """
    from geokv.errors import ConfigError
    from geokv.scenario import load_scenario
    from geokv.units import parse_size
    from geokv.vm import choose_place

    loaded = load_scenario(scenario, list(set_ or []))
    if link not in loaded.topology.links:
        known = ", ".join(loaded.topology.links)
        raise ConfigError(f"--link: {loaded.name} has no link {link!r} (links: {known})")
    try:
        most_bytes = parse_size(limit)
    except ValueError as error:
        raise ConfigError(f"--limit: {error}") from None
    options = {"cell": cell, "site": site, "everything": everything, "most_bytes": most_bytes}
    path = out.absolute()
    with tempfile.TemporaryDirectory(prefix="geokv-capture-", dir=_beside(path)) as work:
        Path(work, "records").mkdir()
        Path(work, "scenario.yaml").write_text(loaded.to_yaml(), encoding="utf-8")
        argv = ("python", "-m", "geokv.coordinator.capture", work, link, str(path))
        done = _run(choose_place(loaded.clock), (*argv, json.dumps(options)), loaded.vm.memory)
    typer.echo(f"{done['label']}: {done['text']}")
    _print_frames(path)
    order = "-o tcp.reassemble_out_of_order:TRUE"
    typer.echo(f"\nopen it with\n  wireshark -X lua_script:{LUA} {order} {out}")


def _beside(path: Path) -> Path:
    """The folder of the capture: the VM sees it, and it must take the file anyway."""
    from geokv.errors import ConfigError

    if not path.parent.is_dir():
        raise ConfigError(f"--out: there is no folder {path.parent}")
    return path.parent


def _run(place: Any, argv: tuple[str, ...], memory_bytes: int) -> dict[str, Any]:
    from geokv.errors import LabError
    from geokv.vm import Job
    from geokv.vm.steps import error_of, taker
    from geokv.vm.supervise import run_job

    steps: list[dict[str, Any]] = []
    with Console(stderr=True).status("running the cell"):
        outcome = run_job(
            place, Job(argv, memory_bytes), taker(steps, partial(typer.echo, err=True))
        )
    for step in steps:
        if error := error_of(step, LabError):
            raise error
        if step["event"] == "captured":
            return step
    tail = "\n".join(f"  | {line}" for line in outcome.errors.splitlines()[-12:])
    raise LabError(f"the capture ended early\n{tail}")


def _print_frames(path: Path) -> None:
    from geokv.cache.substrate.tcp.dissector import read_capture

    counts: Counter[tuple[str, bool]] = Counter()
    payload: Counter[tuple[str, bool]] = Counter()
    for one in read_capture(path):
        counts[one.name, one.to_server] += 1
        payload[one.name, one.to_server] += one.payload_bytes
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for title in ("frame", "to server", "to client", "payload bytes"):
        table.add_column(title, justify="left" if title == "frame" else "right")
    for name in dict.fromkeys(name for name, _ in counts):
        both = (True, False)
        table.add_row(
            name,
            *(str(counts[name, way] or "–") for way in both),
            str(sum(payload[name, way] for way in both) or "–"),
        )
    Console().print(table)
