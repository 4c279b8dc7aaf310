"""The way between two sites' heartbeats, in one direction: cut, healed, delayed, repeated."""

from __future__ import annotations

import asyncio
import socket


class Relay:
    """Hands datagrams that come to ``port`` on to ``target_port``.

    Attributes:
        cut: nothing passes.
        delay_s: everything comes so much later.
        passed: all that was handed on.
    """

    def __init__(self) -> None:
        self.target_port = 0
        self.cut = False
        self.delay_s = 0.0
        self.passed: list[bytes] = []
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.bind(("127.0.0.1", 0))
        self.port = int(self._sock.getsockname()[1])
        asyncio.get_running_loop().add_reader(self._sock, self._readable)

    def inject(self, data: bytes) -> None:
        """Send something in whoever's name it is."""
        self._sock.sendto(data, ("127.0.0.1", self.target_port))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()

    def _readable(self) -> None:
        data = self._sock.recv(65536)
        if self.cut or not self.target_port:
            return
        self.passed.append(data)
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, self.inject, data)
        else:
            self.inject(data)
