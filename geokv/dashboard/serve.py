"""Serving the dashboard until it is told to end."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from geokv.dashboard.app import Dashboard, build_app
from geokv.dashboard.guard import Guard
from geokv.ending import set_when_told
from geokv.errors import ConfigError
from geokv.site.front import HttpServer, listen

LOOPBACK = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"
_STALLED_S = 60.0
"""A page that takes nothing for so long has its connection cut."""


@dataclass(frozen=True)
class Settings:
    """
    Args:
        root: the folder of runs; need not be there yet.
        host: an IPv4 address of this machine.
        port: 0 takes a free one.
        exposed: whether ``host`` may be another one than loopback.
    """

    root: Path
    host: str
    port: int
    exposed: bool


@dataclass(frozen=True)
class Ready:
    """What a user needs: the address to open, which carries the token behind its ``#``, where
    browsers keep it to themselves."""

    url: str


async def serve_dashboard(settings: Settings, on_ready: Callable[[Ready], None]) -> int:
    """Serve until Ctrl-C, SIGTERM or SIGHUP, then end the runs that were started from the page.

    Returns:
        How many runs there were to end.

    Raises:
        ConfigError: a host that is no IPv4 address, or another than loopback without ``exposed``;
            a folder that is a run.
        HostError: the port is taken, or the address is not this machine's.
    """
    _require_address(settings.host)
    if settings.host != LOOPBACK and not settings.exposed:
        raise ConfigError(
            f"--host {settings.host}: other machines could read every run",
            "add --expose if they may, or leave --host out and use an SSH tunnel",
        )
    if (settings.root / "manifest.json").exists():
        raise ConfigError(
            f"{settings.root}: is a run itself", "give the folder that the runs lie in"
        )
    listener = listen(settings.host, settings.port, "geokv dashboard")
    try:
        return await _serve(settings, listener, on_ready)
    finally:
        listener.close()


def _require_address(host: str) -> None:
    try:
        IPv4Address(host)
    except ValueError:
        raise ConfigError(
            f"--host {host}: is no IPv4 address", "write it as 127.0.0.1, or leave --host out"
        ) from None


async def _serve(
    settings: Settings, listener: socket.socket, on_ready: Callable[[Ready], None]
) -> int:
    port = int(listener.getsockname()[1])
    everywhere = settings.host == _EVERYWHERE
    stop, token = asyncio.Event(), secrets.token_urlsafe(24)
    set_when_told(stop)
    dashboard = Dashboard(settings.root, stop, max(2, len(os.sched_getaffinity(0))))
    app = build_app(dashboard)
    names = {LOOPBACK, "localhost"} | ({socket.gethostname()} if everywhere else {settings.host})
    app.add_middleware(Guard, token=token, names=names, port=port, any_address=everywhere)
    host = LOOPBACK if everywhere else settings.host
    on_ready(Ready(f"http://{host}:{port}/#token={token}"))
    try:
        await HttpServer(app, listener, stalled_s=_STALLED_S).run(stop)
    finally:
        ended = await dashboard.children.close()
    return ended
