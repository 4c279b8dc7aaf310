"""``geokv dashboard``: runs in the browser, while they go on and afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from geokv.errors import ConfigError


def dashboard(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder of runs; default results/.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    host: Annotated[str, typer.Option(help="IPv4 address to listen on.")] = "127.0.0.1",
    expose: Annotated[
        bool, typer.Option("--expose", help="Let --host be one that other machines reach.")
    ] = False,
) -> None:
    """Show the runs of a folder in the browser, until Ctrl-C.

    Finished runs with verdict, topology, requests and files; running ones as
    they go on. From the page a scenario can be started, and links be cut, sites
    be killed and healed in a lab that runs live.

    The address that is printed carries a token. Whoever has it can start and
    end runs; everybody else on this machine can only look. Runs that were
    started from the page end with the dashboard.

    Examples:

      geokv dashboard

      geokv dashboard /data/runs --port 9000

      ssh -L 8765:127.0.0.1:8765 lab geokv dashboard
    """
    from geokv.dashboard.serve import Ready, Settings, serve_dashboard

    root = folder if folder is not None else Path("results")
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder", "runs are kept under results/")
    noise = Console(stderr=True, soft_wrap=True, highlight=False)
    if expose and host != "127.0.0.1":
        noise.print(
            f"warning: whoever reaches {host} can read every run in {root}, "
            "and the token crosses the network unencrypted"
        )

    def tell(ready: Ready) -> None:
        print(f"{root} at {ready.url}\n\nCtrl-C ends it, and the runs started from it.", flush=True)

    settings = Settings(root=root, host=host, port=port, exposed=expose)
    ended = asyncio.run(serve_dashboard(settings, tell))
    runs = f", and with it {ended} run{'s' if ended > 1 else ''}" if ended else ""
    noise.print(f"ended{runs}")
