"""What all connections of a site answer from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geokv.cache.codec_time import CodecTime
from geokv.cache.layout import ChunkLayout
from geokv.cache.substrate.tcp.memory import Memory
from geokv.cache.substrate.tcp.throttle import Throttle
from geokv.cache.substrate.transport import ChunkSink, ChunkSource, Handler


@dataclass
class Desk:
    """One site's.

    Args:
        idle_s: a connection without a request for so long is closed.
        send_s: how long an answer that is no chunk, and the payload of an offer that
            was accepted, may take.
        codecs: charge for coding; None charges nothing.
    """

    site: str
    layout: ChunkLayout
    source: ChunkSource
    sink: ChunkSink | None
    handlers: Mapping[str, Handler]
    memory: Memory
    throttle: Throttle
    idle_s: float
    send_s: float
    codecs: CodecTime | None = None
