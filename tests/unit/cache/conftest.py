"""Fixtures of the cache's tests; the helpers are in ``cache_sites``."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from cache_sites import socket_pair, world

__all__ = ["world"]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket_pair()
    yield pair
    for sock in pair:
        sock.close()
