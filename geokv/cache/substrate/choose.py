"""A site's transport by its name in the settings: ``cache.substrate.kind``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from geokv.cache.layout import ChunkLayout
from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.descriptor import AgentTransport
from geokv.cache.substrate.tcp import TcpTransport
from geokv.cache.substrate.tcp.keyring import Keyring
from geokv.cache.substrate.transport import Transport
from geokv.errors import ConfigError

Kind = Literal["tcp", "nixl", "mooncake"]


def make_transport(
    kind: str,
    site: str,
    layout: ChunkLayout,
    keys: Keyring | bytes,
    *,
    virtual: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Transport:
    """The transport of ``site``.

    Args:
        kind: ``tcp`` (ours), or ``nixl`` and ``mooncake``, which carry the payload while
            calls and authentication stay ours.
        virtual: the clock is virtual. Foreign engines poll and spin, which would stop it.
        settings: ``TcpTransport``'s keyword arguments. ``codec``, caps and ``mixed``
            have no effect on what a foreign engine carries; ``streams`` × ``in_flight``
            of its transfers are under way at once with each site.

    Raises:
        ConfigError: there is no such kind, or it cannot run on this clock.
    """
    if kind not in get_args(Kind):
        known = ", ".join(get_args(Kind))
        raise ConfigError(f"substrate.kind: unknown transport {kind!r}", f"known: {known}")
    more = dict(settings or {})
    control = TcpTransport(site, layout, keys, **more)
    if kind == "tcp":
        return control
    if virtual:
        raise ConfigError(
            f"substrate.kind: {kind} polls and spins, which stops virtual time",
            "run it with --clock wall",
        )
    window = more.get("streams", 4) * more.get("in_flight", 4)
    return AgentTransport(control, _nixl if kind == "nixl" else _mooncake, layout, window)


async def _nixl(control: TcpTransport, host: str) -> Agent:
    from geokv.cache.substrate.nixl import NixlBackend

    return await NixlBackend.agent(control.site, control.incarnation)


async def _mooncake(control: TcpTransport, host: str) -> Agent:
    from geokv.cache.substrate.mooncake import MooncakeBackend

    return await MooncakeBackend.agent(control.site, host, control.incarnation)
