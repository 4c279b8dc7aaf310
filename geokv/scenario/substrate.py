"""How chunks travel between sites: by whose engine, over how many connections, how fast."""

from typing import Annotated, Literal

from pydantic import Field

from geokv.config import Strict
from geokv.units import Rate, Seconds

Cap = Annotated[Rate, Field(gt=0)]
GigabytesPerS = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""10^9 bytes a second."""
LOSSY = ("fp8", "int8")
"""Codecs that do not give back what went in."""

FOREIGN = ("nixl", "mooncake")
"""Engines that carry payload in place of ours; calls and authentication stay ours."""
TCP_ONLY = ("codec", "codec_cost", "tenant_caps", "link_caps", "fresh")
"""What has no effect on payload that a foreign engine carries."""


class CodecSpeed(Strict):
    """What a site codes and decodes, in bytes before coding and before S, one thing at a time
    in each direction."""

    encode: GigabytesPerS
    decode: GigabytesPerS


class Substrate(Strict):
    """One model for all kinds, so that a sweep can set them beside each other."""

    kind: Literal["tcp", "nixl", "mooncake"] = "tcp"
    """``tcp`` is ours; the others are optional packages and run in wall clock only."""
    streams: Annotated[int, Field(ge=1, le=64)] = 4
    """Connections per pair of sites; chunks are striped over them."""
    in_flight: Annotated[int, Field(ge=1, le=1024)] = 4
    """Requests outstanding on one connection; 1 pays a round trip per chunk."""
    codec: Literal["none", "zstd", "fp8", "int8"] = "none"
    """How KV is coded on the wire; the lossy ones need ``cache.exact: false``."""
    codec_cost: CodecSpeed | None = None
    """What coding is charged with ``compute: charged``; ours (``geokv/cache/codec_cost.py``)
    when unset."""
    security: Literal["mac", "tls"] = "mac"
    """``mac`` proves every frame and leaves payload readable; ``tls`` (1.3) encrypts it all."""
    tenant_caps: dict[str, Cap] | None = None
    """Tenant → bit/s that each site sends for it, to all others together."""
    link_caps: dict[str, Cap] | None = None
    """Two sites, as ``a-b`` → bit/s that each of them sends the other."""
    deadline: Annotated[Seconds, Field(gt=0, le=3600)] = 5.0
    """Longest wait for one fetch; what has not come by then is a counted miss."""
    lease: Annotated[Seconds, Field(ge=0.001, le=3600)] | None = None
    """How long a chunk is pinned for one answer at most; 10 s where nothing is said."""
    warm: bool = True
    """Open the connections' congestion windows before the first measured request."""
    fresh: bool = False
    """New connections before each remote hit, warmed again if ``warm``; their handshakes are
    over when it is asked."""

    @property
    def window(self) -> int:
        """Transfers asked for at the same time."""
        return self.streams * self.in_flight

    @property
    def capped(self) -> bool:
        """Is payload held back by a cap anywhere?"""
        return bool(self.tenant_caps or self.link_caps)

    def caps_of(self, site: str) -> dict[str, int]:
        """Peer → bit/s that ``site`` may send it."""
        caps = {}
        for pair, rate in (self.link_caps or {}).items():
            ends = pair.split("-")
            if site in ends:
                ends.remove(site)
                caps[ends[0]] = rate
        return caps
