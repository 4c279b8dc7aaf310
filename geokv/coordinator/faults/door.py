"""A site's API, asked from the site's own namespace: no emulated link is crossed."""

from __future__ import annotations

import asyncio
import socket

from geokv.coordinator.deploy import API_PORT
from geokv.coordinator.drill.stage import Stage
from geokv.lab.enter import in_netns


async def knock(stage: Stage, site: str, api_key: str, deadline_s: float) -> int | None:
    """Ask which models there are.

    Returns:
        The status of the answer; None when none came within the deadline.
    """
    loop = asyncio.get_running_loop()
    with in_netns(stage.lab.netns(site)):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with sock:
        sock.setblocking(False)
        try:
            async with asyncio.timeout(deadline_s):
                await loop.sock_connect(sock, (stage.lab.address(site), API_PORT))
                lines = (
                    "GET /v1/models HTTP/1.1",
                    f"Host: {site}",
                    f"Authorization: Bearer {api_key}",
                    "Connection: close",
                )
                await loop.sock_sendall(
                    sock, "".join(f"{one}\r\n" for one in (*lines, "")).encode()
                )
                answer = b""
                while b"\r\n" not in answer:
                    part = await loop.sock_recv(sock, 4096)
                    if not part:
                        return None
                    answer += part
        except (TimeoutError, OSError):
            return None
    return int(answer.split(b" ", 2)[1])
