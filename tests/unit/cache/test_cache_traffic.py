"""What a site says to a directory elsewhere is counted: calls, and bytes each way."""

from __future__ import annotations

from cache_sites import World, make_layout, make_refs, soon

LAYOUT = make_layout()


async def test_messages_to_a_directory_elsewhere_are_counted(world: World) -> None:
    a, b = await world.pair(LAYOUT)
    refs = make_refs(LAYOUT, 3)
    await a.put(refs)
    before = b.cache.directory.stats()["traffic"].get("locate", {"calls": 0, "sent_bytes": 0})
    await b.cache.lookup(refs, soon())
    after = b.cache.directory.stats()["traffic"]["locate"]
    assert after["calls"] == before["calls"] + 1
    # A list of three keys of 16 bytes, each with two bytes in front.
    assert after["sent_bytes"] == before["sent_bytes"] + 1 + 3 * (16 + 2)
    assert after["received_bytes"] >= 3 * len("a")
    assert a.cache.directory.stats()["traffic"] == {}, "the table is here: nothing crosses a link"
