"""Giving a chunk of ours to a peer that takes it."""

from __future__ import annotations

import asyncio

from geokv.cache.substrate.tcp.client import Stream
from geokv.cache.substrate.tcp.pool import Job, Peer
from geokv.cache.substrate.tcp.request import Request
from geokv.cache.substrate.tcp.requests import PutRequest
from geokv.cache.substrate.transport import PUSH, Served
from geokv.errors import FetchError


async def put(peer: Peer, served: Served, deadline_ns: int, tenant: str) -> FetchError | None:
    """Offer and send one chunk; ``None`` once ``peer`` has it readable, or why not.

    ``served`` stays the caller's, and pinned until this returns: by then no connection
    reads its memory any more.
    """
    result: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(stream: Stream) -> Request:
        request = PutRequest(served, peer.site, deadline_ns, result, stream.deliver, tenant)
        stream.send(request)
        return request

    peer.queue(Job(PUSH, deadline_ns, result, start, upload=True))
    try:
        await result
    except FetchError as error:
        return error
    return None
