"""A site's HTTP server: uvicorn on a socket we bound, without its ticks and with limits."""

from __future__ import annotations

import asyncio
import socket
import struct

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from geokv.errors import HostError


class HttpServer:
    """Serves until told to stop.

    uvicorn wakes ten times a second to refresh a Date header; each wake-up is real work in
    an otherwise free idle hour of virtual time.

    Args:
        stalled_s: after so long without a byte taken, a connection with something to send
            is cut by the kernel; None never.
    """

    def __init__(
        self, app: FastAPI, listener: socket.socket, stalled_s: float | None = None
    ) -> None:
        stalled_ms = None if stalled_s is None else max(1, round(stalled_s * 1000))

        class Protocol(_Connection):
            stalled = stalled_ms

        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            date_header=False,
            server_header=False,
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=5,
        )
        self._server = _TicklessServer(config)
        self._listener = listener

    async def run(self, stop: asyncio.Event) -> None:
        """Serve; at most 5 s after ``stop`` what is still open is cut."""
        self._server.stop = stop
        await self._server._serve(sockets=[self._listener])


class _TicklessServer(uvicorn.Server):
    stop: asyncio.Event

    async def main_loop(self) -> None:
        await self.stop.wait()


class _Connection(H11Protocol):
    """One client's connection, which a response may cut: ``scope["state"]["abort"]()``."""

    #: ms; see ``HttpServer``.
    stalled: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": self.abort}
        sock = transport.get_extra_info("socket")
        if self.stalled is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.stalled)

    def abort(self) -> None:
        """Reset the connection: what the kernel has not sent by now is thrown away too."""
        sock = self.transport.get_extra_info("socket")
        if sock.fileno() < 0:
            return  # The client was faster: its connection has ended already.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


def listen(host: str, port: int, what: str) -> socket.socket:
    """A socket that listens on ``host:port``.

    Raises:
        HostError: the port is taken, or the address is not this machine's.
    """
    # asyncio switches Nagle off only on sockets that name their protocol; with it on, the
    # first token would wait 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise HostError(
            f"{what} cannot listen on {host}:{port} ({error.strerror})",
            "stop what holds the port, or choose another",
        ) from None
    listener.listen(1024)
    listener.setblocking(False)
    return listener
