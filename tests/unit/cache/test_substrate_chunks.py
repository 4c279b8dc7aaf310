"""Chunks over our own connections, and over an agent on them."""

from __future__ import annotations

import msgspec
import pytest
from cache_sites import SECRET, Site, make_refs, soon
from chunk_suite import *  # noqa: F403
from chunk_suite import LAYOUT, MakeTransport

from geokv.cache import ChunkLayout
from geokv.cache.receiving import TierSink
from geokv.cache.serving import TierSource
from geokv.cache.substrate import Transport
from geokv.cache.substrate.choose import make_transport as choose
from geokv.cache.substrate.descriptor import AgentTransport
from geokv.cache.substrate.lending import OPEN, Opened, Wanted
from geokv.cache.substrate.tcp import TcpTransport
from geokv.cache.substrate.tcp.backend import TcpBackend
from geokv.errors import ConfigError


def direct(name: str, layout: ChunkLayout) -> Transport:
    return TcpTransport(name, layout, SECRET)


def over_an_agent(name: str, layout: ChunkLayout) -> Transport:
    control = TcpTransport(name, layout, SECRET)
    return AgentTransport(control, lambda control, host: TcpBackend.agent(control), layout)


@pytest.fixture(params=[direct, over_an_agent])
def make_transport(request: pytest.FixtureRequest) -> MakeTransport:
    chosen: MakeTransport = request.param
    return chosen


async def test_a_peer_makes_no_names_of_our_counters(
    pair: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    refs = make_refs(LAYOUT, 1)
    await a.put(refs)
    with monkeypatch.context() as patch:
        patch.setattr(TierSink, "reserve", lambda *_: "a cause of its own")
        result = await a.cache.push(["b"], refs[0], soon())
    assert result["b"] is not None and result["b"].cause == "refused"
    monkeypatch.setattr(TierSource, "open", lambda *_: "a cause of its own")
    outcome, _ = await b.pull(refs)
    assert outcome.misses == {"refused": 1} and "of its own" not in outcome.reason


@pytest.mark.parametrize("group", [LAYOUT.groups, 10**6, -2])
async def test_a_group_that_no_chunk_has_is_not_lent(pair: tuple[Site, Site], group: int) -> None:
    a, b = pair
    if isinstance(b.cache.transport, TcpTransport):
        return  # lends nothing; its answers to GET are looked at with those of other insiders
    (ref,) = make_refs(LAYOUT, 1)
    await a.put([ref])
    body = msgspec.msgpack.encode(Wanted(ref.key, ref.tenant, group))
    answer = await b.cache.transport.call("a", OPEN, body, soon())
    assert msgspec.msgpack.decode(answer, type=Opened) == Opened("mismatch")
    assert a.cache.tier.stats()["pinned"] == 0 and a.cache.stats()["served"] == {"mismatch": 1}


async def test_a_lease_is_ended_by_whoever_has_it(pair: tuple[Site, Site]) -> None:
    a, b = pair
    transport = a.cache.transport
    if not isinstance(transport, AgentTransport) or transport._lender is None:
        return
    (ref,) = make_refs(LAYOUT, 1)
    await a.put([ref])
    body = msgspec.msgpack.encode(Wanted(ref.key, ref.tenant))
    answer = await b.cache.transport.call("a", OPEN, body, soon())
    lease = msgspec.msgpack.decode(answer, type=Opened).lease
    for name, pinned in (("c", 1), ("b", 0)):
        transport._lender.noticed(name, lease)
        assert a.cache.tier.stats()["pinned"] == pinned, name


def test_kinds_by_name() -> None:
    assert isinstance(choose("tcp", "a", LAYOUT, SECRET), TcpTransport)
    assert isinstance(choose("nixl", "a", LAYOUT, SECRET), AgentTransport)
    with pytest.raises(ConfigError, match=r"substrate\.kind: unknown transport 'rdma'"):
        choose("rdma", "a", LAYOUT, SECRET)
    with pytest.raises(ConfigError, match="stops virtual time"):
        choose("mooncake", "a", LAYOUT, SECRET, virtual=True)
