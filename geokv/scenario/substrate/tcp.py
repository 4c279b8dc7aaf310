"""geokv's own transport: pull over pooled TCP connections."""

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.units import Seconds


class TcpSubstrate(Strict):
    kind: Literal["tcp"] = "tcp"
    streams: Annotated[int, Field(ge=1, le=64)] = 4
    """Connections per pair of sites; chunks are striped over them."""
    in_flight: Annotated[int, Field(ge=1, le=1024)] = 4
    """Requests outstanding on one connection; 1 pays a round trip per chunk."""
    codec: Literal["none", "zstd", "fp8", "int8"] = "none"
    """How KV is coded on the wire; the lossy ones need ``cache.exact: false``."""
    security: Literal["mac", "tls"] = "mac"
    """``mac`` proves every frame and leaves payload readable; ``tls`` (1.3) encrypts it all."""
    deadline: Annotated[Seconds, Field(gt=0, le=3600)] = 5.0
    """Longest wait for one fetch; what has not come by then is a counted miss."""
    warm: bool = True
    """Open the connections' congestion windows before the first measured request."""
    fresh: bool = False
    """New connections before each remote hit, warmed again if ``warm``; their handshakes are
    over when it is asked."""

    @property
    def window(self) -> int:
        """Transfers asked for at the same time."""
        return self.streams * self.in_flight
