"""How an agent of each engine is made on this host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from cache_sites import SECRET, make_layout

from geokv.cache.substrate.agent import Agent
from geokv.cache.substrate.tcp import TcpTransport
from geokv.cache.substrate.tcp.backend import TcpBackend
from geokv.cache.substrate.transport import Ended, Served


class Nothing:
    """A site without chunks."""

    def ready(self, key: bytes) -> bool:
        return True

    async def reach(self, key: bytes, tenant: str) -> None:
        return None

    def forgo(self, key: bytes) -> None:
        return None

    def open(self, key: bytes, tenant: str, peer: str) -> Served | str:
        return "absent"

    def closed(self, key: bytes, peer: str, ended: Ended) -> None:
        return None


async def tcp(name: str) -> Agent:
    transport = TcpTransport(name, make_layout(), SECRET)
    await transport.serve("127.0.0.1", 0, Nothing(), {})
    agent = await TcpBackend.agent(transport)
    close = agent.close

    async def close_both() -> None:
        await close()
        await transport.close()

    agent.close = close_both  # type: ignore[method-assign]
    return agent


async def nixl(name: str) -> Agent:
    from geokv.cache.substrate.nixl import NixlBackend

    return await NixlBackend.agent(name)


async def mooncake(name: str) -> Agent:
    from geokv.cache.substrate.mooncake import MooncakeBackend

    return await MooncakeBackend.agent(name, "127.0.0.1")


MAKERS: Mapping[str, Callable[[str], Awaitable[Agent]]] = {
    "tcp": tcp,
    "nixl": nixl,
    "mooncake": mooncake,
}
