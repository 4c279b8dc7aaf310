"""Every checker on histories that are small enough to be read: right ones, and each way of
being wrong with the events that must be shown for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from histories import (
    BAD,
    MS,
    PROMPT,
    answer,
    cold,
    directory,
    ev,
    fetch,
    gone,
    heard,
    held,
    history,
    life,
    lookup,
    lost,
    peer,
    pools,
    probes,
    purge,
    request,
    revoked,
    rotted,
    serve,
    spoilt,
    store,
    use,
)

from geokv.measure.checker import CHECKERS, Event, History
from geokv.measure.checker.copies import COPIES
from geokv.measure.drill.recovery import _SIGNS
from geokv.scenario.control import JUDGED

OTHER = [99, *PROMPT[1:]]
END = ev(100, "drill-end")
EXACT = ev(0, "drill-begin", exact=True)

SPREAD = [20 + (number * 37 % 101) / 100 for number in range(200)]
"""TTFT of 200 requests, 20 to 21 ms."""
OTHERWISE = SPREAD[::-1]
OWN_HITS = [one / 4 for one in SPREAD]

# line → what it is about → events; all of these are in order
GOOD: dict[str, dict[str, list[Event]]] = {
    "stale": {
        "fetched and used": [life(0, "a", 1), store(1), fetch(2), use(3)],
        "passed on from a place of another number": [
            store(1), fetch(2), serve(3, "b", peer="c", generation=4), fetch(4, "c", source="b",
            generation=4), use(5), use(6, "c", generation=4),
        ],
        "from the new life": [
            life(0, "a", 1), store(1), life(2, "a", 2), store(3, incarnation=2),
            fetch(4, incarnation=2), use(5, incarnation=2),
        ],
        "still on the wire when its sender died, however long": [
            life(0, "a", 1), store(1), life(2, "a", 1, "killed"), life(3, "a", 2),
            fetch(1500, asked_ns=1_900_000), use(1501),
        ],
        "still on the wire two lives later": [
            life(0, "a", 1), store(1), life(2, "a", 2), life(3, "a", 3),
            fetch(4, asked_ns=1_900_000), use(5),
        ],
        "kept while its sender began anew": [
            life(0, "a", 1), store(1), fetch(2), life(3, "a", 2), use(2000),
        ],
        "promoted, which is stamped anew": [
            store(1), ev(2, "demote", "a", key="k1", tier="disk", place=0, cause=""),
            ev(3, "evict", "a", key="k1", tier="dram", place=0),
            ev(4, "promote", "a", key="k1", tier="disk", place=5, generation=4, cause=""),
            use(5, "a", source="disk", generation=4),
        ],
        "dropped when it had been found": [
            store(1), lookup(3, "a", 2), gone(4), use(5, "a", source="dram"),
        ],
        "dropped while it was looked for": [
            store(1), lookup(3, "a", 1.5), gone(2), use(5, "a", source="dram"),
        ],
        "dropped before it was looked for again": [
            store(1), lookup(3, "a", 2), gone(4), lookup(6, "a", 5), use(7, "a", source="dram"),
        ],
        "dropped, and computed anew": [
            store(1), gone(2), store(3), lookup(5, "a", 4), use(6, "a", source="dram"),
        ],
        "evicted, and still on the disk": [
            store(1), ev(2, "demote", "a", key="k1", tier="disk", place=0, cause=""),
            gone(3, op="evict"), lookup(5, "a", 4), use(6, "a", source="disk"), fetch(8),
        ],
        "dropped when it had been asked for": [
            store(1), gone(2), fetch(3, asked_ns=1_900_000), use(4),
        ],
        "of the request that had it on its device": [
            store(1), gone(2), lookup(4, "a", 3), use(5, "a", source="device"),
        ],
        "unfenced before": [
            store(1, "b"), ev(2, "fenced", "b", why="lease"), ev(3, "unfenced", "b"),
            use(4, source="dram"),
        ],
        "already on the device": [
            store(1, "b", generation=3), use(2, source="device", generation=0, checksums=[]),
        ],
        "refused while fenced": [
            store(1), ev(2, "fenced", "a", why="lease"), serve(3, cause="fenced"), use(4, "c"),
        ],
    },
    "foreign": {
        "each its own": [
            store(1), store(2, key="k2", tenant="t1", place=1), fetch(3),
            use(4), use(5, "a", "k2", "dram", tenant="t1", request_id="r2"),
        ],
        "a hit in what the same tenant sent": [
            request(1, "r0"), answer(20, "r0"), request(30), answer(50, cached_tokens=32),
        ],
        "less than a block": [
            request(1, "r0", tenant="t1"), request(30), answer(50, cached_tokens=15),
        ],
        "a hit in what it sent later and was computed sooner": [
            request(1), request(2, "r2", "a"), answer(20, "r2", "a"),
            answer(50, cached_tokens=32),
        ],
        "a hit in what was prepared": [
            ev(0, "prepared", "a", tenant="t1", prefix=3, prefix_tokens=32, prompt="p"),
            ev(0, "prepared", "a", tenant="t0", prefix=3, prefix_tokens=32, prompt="p"),
            request(30, prompt="q1", prefix=3, prefix_tokens=32), answer(50, cached_tokens=32),
        ],
        "the same prompt, computed anew": [
            request(1, "r0", tenant="t1"), answer(20, "r0"), request(30), answer(50),
        ],
    },
    "corrupt": {
        "as stored": [store(1), fetch(2), use(3)],
        "stored twice, with other rounding": [
            store(1), store(2, "b", checksums=BAD), use(3, source="dram", checksums=BAD),
        ],
        "computed twice alike, where content is exact": [
            EXACT, store(1), store(2, "c"), fetch(3, source="c"), use(4),
        ],
        "converted": [
            store(1), fetch(2, place=-1), ev(3, "convert", "b", key="k1", source="a", place=0,
            tenant="t0", generation=1, incarnation=1, checksums=BAD), use(4, checksums=BAD),
        ],
        "damaged, found and not used": [store(1), lost(2, "corrupt"), use(3, "a", source="dram")],
        "found on a disk": [
            ev(1, "found", "b", key="k1", tier="disk", place=0, tenant="t0", checksums=BAD),
            use(3, checksums=BAD),
        ],
    },
    "half-written": {
        "whole everywhere": [store(1), serve(2), fetch(3), use(4)],
        "up from the disk of the life before": [
            store(1), ev(2, "demote", "a", key="k1", tier="disk", place=0, cause=""),
            life(3, "a", 1, "killed"),
            ev(4, "found", "a", key="k1", tier="disk", place=0, tenant="t0",
               checksums=["aa", "bb"]),
            life(5, "a", 2), use(6, "a", source="disk"),
        ],
        "cut off, and said so": [
            store(1), serve(2, sent_bytes=40, cause="closed"), use(3, "a", source="dram"),
        ],
        "computed here, on the device, and not stored yet": [
            store(1), serve(2), use(3, source="device"), store(4, "b"),
        ],
        "pushed": [store(1), ev(2, "pushed", "b", key="k1", peer="a", cause=""), use(3)],
    },
    "leaked": {"all free or cached": [pools(1), pools(1, "b", cached=0, free=8)]},
    "doubly-owned": {
        "one after the other": [
            store(1), ev(2, "evict", "a", key="k1", tier="dram", place=0), store(3, key="k2"),
        ],
        "places of two tiers": [
            store(1), ev(2, "demote", "a", key="k1", tier="disk", place=0, cause=""),
            store(3, key="k2", place=1),
        ],
        "places of two lives": [store(1), life(2, "a", 1, "killed"), life(3, "a", 2),
                                store(4, key="k2")],
        "dropped while it was read, and kept for that long": [
            store(1), ev(2, "drop", "a", key="k1", tier="dram", place=0),
            use(3, "a", source="dram"), store(4, key="k2"),
        ],
        "another place since": [
            store(1), ev(2, "evict", "a", key="k1", tier="dram", place=0),
            store(3, key="k1", place=1, generation=5), store(4, key="k2"),
            serve(5, generation=5),
        ],
        "on the device whatever became of it below": [
            store(1), ev(2, "evict", "a", key="k1", tier="dram", place=0),
            use(3, "a", source="device"),
        ],
        "a copy of another's, which has a number of its own": [
            fetch(1, generation=7), serve(2, "b", generation=2), use(3, generation=7),
        ],
    },
    "served-after-purge": {
        "nothing purged": [store(1), use(2, "a", source="dram")],
        "computed anew since": [
            store(1), purge(2, "asked"), ev(3, "drop", "a", key="k1", tier="dram", place=0),
            purge(4, "acked"), request(5), store(6), answer(9), use(10, "a", source="dram"),
        ],
        "another tenant's": [
            store(1, tenant="t1"), purge(2, "asked"), purge(4, "acked"), use(5, "a", source="dram"),
        ],
        "computed anew on the device, and not stored yet": [
            store(1), purge(2, "asked"), ev(3, "drop", "a", key="k1", tier="dram", place=0),
            purge(4, "acked"), use(5, "a", source="device"), use(6, "c"),
        ],
        "of a scope that is another tenant's": [
            store(1), ev(2, "purge", "a", purge_id="p1", phase="asked", scope="t1"),
            purge(4, "acked"), use(5, "a", source="dram"),
        ],
        "asked for and not there": [
            store(1), purge(2, "asked"), ev(3, "drop", "a", key="k1", tier="dram", place=0),
            purge(4, "acked"), serve(5, cause="absent"), lost(6, "absent"), use(7, "c"),
        ],
        "used before the acknowledgement": [
            store(1), purge(2, "asked"), use(3, "a", source="dram"), purge(4, "acked"), use(9, "c"),
        ],
        "a hit in what came since": [
            request(1, "r0"), answer(3, "r0"), purge(4, "asked"), request(5, "r2"),
            purge(6, "acked"), answer(8, "r2"), request(9), answer(12, cached_tokens=32),
            use(13, "c"),
        ],
    },
    "purge-in-time": {
        "nobody is away": [
            purge(1, "asked", within_ns=600 * MS), heard(2), purge(9, "acked"),
        ],
        "at its bound": [
            purge(1, "asked", within_ns=600 * MS), heard(2), heard(3, "b"), purge(602, "acked"),
        ],
        "who asked is the authority": [
            purge(1, "asked", within_ns=600 * MS), heard(1, "a"), purge(9, "acked"),
        ],
        "two of them": [
            purge(1, "asked", within_ns=600 * MS), heard(2), purge(9, "acked"),
            purge(800, "asked", "p2", within_ns=600 * MS), heard(801, purge_id="p2"),
            purge(1300, "acked", "p2"),
        ],
    },
    "answered-wrongly": {
        "right": [request(1), answer(20), cold(99)],
        "an error after right words": [
            request(1), answer(20, status="error", error="killed", output_ids=[7]), cold(99),
        ],
        "by the name of the prompt": [request(1, prompt="p"), answer(20), cold(99, "p")],
        "by its words, where the tokens are lost": [
            request(1), answer(20, status="error", error="killed", output_ids=None, text="ab"),
            {**cold(99), "text": "abc"},
        ],
    },
    "never-answered": {
        "in time": [request(1), answer(20), END],
        "a clear error at the deadline": [
            request(1), answer(1001, status="error", error="the deadline passed"), ev(1100,
            "drill-end"),
        ],
    },
    "directory-converges": {
        "what is there": [
            store(1), ev(2, "publish", "a", key="k1"), held(90, "a", "k1", "k9"),
            held(90, "b"), directory(91, k1=["a"]),
        ],
        "told, and gone with its site": [
            store(1), ev(2, "publish", "a", key="k1"), life(3, "a", 1, "killed"),
            held(90, "b"), directory(91),
        ],
        "taken back": [
            store(1), ev(2, "publish", "a", key="k1"), ev(3, "withdraw", "a", key="k1"),
            held(90, "a", "k1"), directory(91),
        ],
        "all of it told": [
            ev(0, "drill-begin", publish="all"), store(1), ev(2, "publish", "a", key="k1"),
            held(90, "a", "k1"), directory(91, k1=["a"]),
        ],
    },
    "integrity": {
        "ok": [ev(90, "quiesced", "a", ok=True, said=""), ev(91, "integrity", "a", result="ok")],
        "rotten since, and never read": [store(1), rotted(2), spoilt(91)],
    },
    "tenant-timing": {
        "two samples of one law": probes(cached_elsewhere=OTHERWISE, cold=SPREAD, cached=OWN_HITS),
        "all alike": probes(cached_elsewhere=[20.0] * 200, cold=[20.0] * 200, cached=OWN_HITS),
        "a tail on one side": probes(
            cached_elsewhere=OTHERWISE[:-3] + [90.0] * 3, cold=SPREAD, cached=OWN_HITS),
    },
    "served-after-revocation": {
        "refused since": [
            request(1), revoked(5), answer(20), request(30, "r2"),
            answer(31, "r2", status="refused")],
        "another tenant goes on": [
            revoked(5), request(6), answer(7, status="refused"), request(8, "r2", tenant="t1"),
            use(9, request_id="r2"), answer(20, "r2")],
        "an error, with nothing given": [revoked(5), request(6), answer(20, status="error")],
    },
}  # fmt: skip

# line → what is wrong → (all events, the places of those that must be shown)
WRONG: dict[str, dict[str, tuple[list[Event], list[int]]]] = {
    "stale": {
        "asked of a life that is over": (
            [life(0, "a", 1), store(1), life(2, "a", 2), fetch(3), use(4)], [2, 3]),
        "asked of a life that was over before the last but one": (
            [life(0, "a", 1), store(1), life(2, "a", 2), life(4, "a", 3),
             fetch(5, asked_ns=3_000_000), use(6)], [2, 4]),
        "asked of a dead one that nobody has followed yet": (
            [life(0, "a", 1), store(1), life(2, "a", 1, "killed"), fetch(3), use(4)], [2, 3]),
        "used after it was dropped": (
            [store(1), gone(2), lookup(4, "a", 3), use(5, "a", source="dram")], [0, 1, 2, 3]),
        "used after it was evicted": (
            [store(1), gone(2, op="evict"), lookup(4, "a", 3), use(5, "a", source="dram")],
            [0, 1, 2, 3]),
        "used after it was dropped, as a copy of before": (
            [store(1), gone(2), store(3, generation=2), gone(4), lookup(6, "a", 5),
             use(7, "a", source="dram")], [0, 3, 4, 5]),
        "used after it was gone from both tiers": (
            [store(1), ev(2, "demote", "a", key="k1", tier="disk", place=0, cause=""),
             gone(3, tier="disk"), gone(4, op="evict"), lookup(6, "a", 5),
             use(7, "a", source="dram")], [0, 3, 4, 5]),
        "fetched after it was dropped": ([store(1), gone(2), fetch(3), use(4)], [0, 1, 2]),
        "a generation it never had": ([store(1), fetch(2), use(3, generation=9)], [1, 2]),
        "an incarnation it never had": ([store(1), fetch(2), use(3, incarnation=7)], [1, 2]),
        "used while fenced": (
            [store(1, "b"), ev(2, "fenced", "b", why="lease"), use(3, source="dram")], [1, 2]),
        "served while fenced": (
            [store(1), ev(2, "fenced", "a", why="lease"), serve(3)], [1, 2]),
    },
    "foreign": {
        "used for another": ([store(1), use(2, "a", tenant="t1", request_id="")], [0, 1]),
        "one key of two tenants": ([store(1), store(2, "b", tenant="t1")], [0, 1]),
        "given to another's request": (
            [request(1, tenant="t1"), store(2), use(3)], [0, 2]),
        "a hit in what only another sent": (
            [request(1, "r0", tenant="t1"), answer(20, "r0"), request(30),
             answer(50, cached_tokens=32)], [0, 2, 3]),
        "a hit in what was prepared for another": (
            [ev(0, "prepared", "a", tenant="t1", prefix=3, prefix_tokens=32, prompt="p"),
             request(30, prompt="q1", prefix=3, prefix_tokens=32), answer(50, cached_tokens=32)],
            [0, 1, 2]),
        "a hit behind the common prefix": (
            [request(1, "r0", tenant="t1", prompt="q1", prefix=3, prefix_tokens=16),
             request(2, "r2", prompt="q2", prefix=3, prefix_tokens=16),
             request(3, prompt="q1", prefix=3, prefix_tokens=16),
             answer(50, cached_tokens=32)], [0, 2, 3]),
    },
    "served-after-revocation": {
        "answered": ([revoked(5), request(1, "r0"), request(6), answer(20)], [0, 2, 3]),
        "given a chunk, then an error": (
            [revoked(5), request(6), use(7), answer(20, status="error")], [0, 1, 2]),
    },
    "corrupt": {
        "used": ([store(1), fetch(2), use(3, checksums=BAD)], [0, 2]),
        "computed otherwise, where content is exact": (
            [EXACT, store(1), store(2, "c", checksums=BAD),
             fetch(3, source="c", checksums=BAD), use(4, checksums=BAD)], [0, 1, 2]),
        "fetched": ([store(1), fetch(2, checksums=BAD)], [0, 1]),
        "rotten since it was found": (
            [ev(1, "found", "b", key="k1", tier="disk", place=0, tenant="t0",
                checksums=["aa", "bb"]), use(3, checksums=BAD)], [0, 1]),
    },
    "half-written": {
        "used before it was whole": ([use(1, source="dram"), fetch(2)], [0]),
        "served before it was whole": ([serve(1), store(2)], [0]),
        "used after a fetch that failed": ([store(1), lost(2, "timeout"), use(3)], [2]),
        "never made ours": ([store(1), fetch(2, place=-1), use(3)], [2]),
        "gone with the life before": (
            [store(1), life(2, "a", 1, "killed"), life(3, "a", 2), serve(4)], [3]),
        "sent in part, said to be whole": ([store(1), serve(2, sent_bytes=40)], [1]),
        "fewer layer groups": ([store(1), fetch(2, checksums=["aa"])], [0, 1]),
    },
    "leaked": {
        "a pin": ([pools(1), pools(2, "b", pinned=1, cached=2)], [1]),
        "a reservation": ([pools(1, reserved=1, free=4)], [0]),
        "a lease": ([pools(1, leases=1)], [0]),
        "a promise": ([pools(1, promised=2)], [0]),
        "blocks that nobody has": ([pools(1, free=4)], [0]),
    },
    "doubly-owned": {
        "two chunks in one place": ([store(1), store(2, key="k2")], [0, 1]),
        "two chunks in one place of the disk": (
            [ev(t, "demote", "a", key=key, tier="disk", place=3, cause="")
             for t, key in ((1, "k1"), (2, "k2"))], [0, 1]),
        "given away while it was sent": (
            [store(1), ev(2, "drop", "a", key="k1", tier="dram", place=0), store(3, key="k2"),
             serve(4)], [0, 1, 2, 3]),
        "given away while it was read": (
            [store(1), fetch(2), ev(3, "drop", "b", key="k1", tier="dram", place=0),
             fetch(4, key="k2"), use(5)], [1, 2, 3, 4]),
        "evicted while it was read": (
            [store(1), ev(2, "evict", "a", key="k1", tier="dram", place=0),
             use(3, "a", source="dram")], [0, 1, 2]),
        "evicted while it was sent, and stored again": (
            [store(1), ev(2, "evict", "a", key="k1", tier="dram", place=0),
             store(3, place=1, generation=5), serve(4)], [0, 1, 3]),
        "evicted while it was read, and fetched again": (
            [fetch(1), ev(2, "evict", "b", key="k1", tier="dram", place=0),
             fetch(3, place=1, generation=5), use(4)], [0, 1, 3]),
    },
    "served-after-purge": {
        "used": (
            [store(1), purge(2, "asked"), purge(3, "acked"), use(4, "a", source="dram")],
            [0, 1, 2, 3]),
        "served": ([store(1), purge(2, "asked"), purge(3, "acked"), serve(4)], [0, 1, 2, 3]),
        "a copy of a copy": (
            [store(1), fetch(2), fetch(3, "c", source="b"), store(4, key="k2", place=1),
             purge(5, "asked"), purge(6, "acked"), use(7, "c", source="dram")],
            [0, 1, 2, 4, 5, 6]),
        "taken late": (
            [store(1), purge(2, "asked"), purge(3, "acked"), fetch(4)], [0, 1, 2, 3]),
        "kept": (
            [store(1), purge(2, "asked"), purge(3, "acked"), held(90, "a", "k1")], [0, 1, 2, 3]),
        "kept on a disk by a site that was away": (
            [store(1), ev(2, "demote", "a", key="k1", tier="disk", place=0, cause=""),
             life(3, "a", 1, "killed"), purge(4, "asked"), purge(5, "acked"),
             ev(6, "found", "a", key="k1", tier="disk", place=0, tenant="t0"), life(7, "a", 2),
             ev(8, "promote", "a", key="k1", tier="disk", place=0, generation=1, cause=""),
             use(9, "a", source="disk")], [0, 3, 4, 8]),
        "everything was meant": (
            [store(1), {**purge(2, "asked"), "tenant": None}, purge(3, "acked"), serve(4)],
            [0, 1, 2, 3]),
        "a hit in blocks of before": (
            [request(1, "r0"), answer(3, "r0"), purge(4, "asked"), purge(5, "acked"),
             request(6), answer(9, cached_tokens=32)], [2, 3, 4, 5]),
    },
    "purge-in-time": {
        "late": (
            [purge(1, "asked", within_ns=600 * MS), heard(2), purge(603, "acked")], [0, 1, 2]),
        "late, and nobody says when it was written": (
            [purge(1, "asked", within_ns=600 * MS), purge(602, "acked")], [0, 1]),
        "never": (
            [purge(1, "asked", within_ns=600 * MS), heard(2), ev(700, "drill-end")], [0, 1, 2]),
        "late, and they had met again before": (
            [peer(0, "down"), peer(1, "up"), purge(2, "asked", within_ns=600 * MS),
             heard(3), purge(604, "acked")], [2, 3, 4]),
        "late, and a third one was away": (
            [peer(0, "down", other="b"), purge(1, "asked", within_ns=600 * MS), heard(2),
             purge(603, "acked")], [1, 2, 3]),
    },
    "answered-wrongly": {
        "another token": ([request(1), answer(20, output_ids=[7, 8, 0]), cold(99)], [0, 1, 2]),
        "too few": ([request(1), answer(20, output_ids=[7, 8]), cold(99)], [0, 1, 2]),
        "another before its error": (
            [request(1), answer(20, status="error", error="killed", output_ids=[6]), cold(99)],
            [0, 1, 2]),
        "other words": (
            [request(1), answer(20, output_ids=None, text="ab"), {**cold(99), "text": "ac"}],
            [0, 1, 2]),
    },
    "never-answered": {
        "nothing": ([request(1), request(2, "r2"), answer(20), END], [1, 3]),
        "too late": ([request(1), answer(1002), ev(1600, "drill-end")], [0, 1]),
        "no reason": ([request(1), answer(20, status="error"), END], [0, 1]),
    },
    "directory-converges": {
        "named and not there": (
            [held(90, "a"), held(90, "b"), directory(91, k1=["a"])], [0, 2]),
        "a site that is gone": (
            [life(1, "a", 1), life(3, "a", 1, "killed"), held(90, "b"), directory(91, k1=["a"])],
            [1, 3]),
        "told and forgotten": (
            [ev(2, "publish", "a", key="k1"), held(90, "a", "k1"), directory(91)], [0, 1, 2]),
        "told and forgotten when another site died": (
            [ev(2, "publish", "a", key="k1"), life(3, "b", 1, "killed"), held(90, "a", "k1"),
             directory(91)], [0, 2, 3]),
        "there and never told": (
            [ev(0, "drill-begin", publish="all"), held(90, "a", "k1"), directory(91)], [0, 1, 2]),
    },
    "integrity": {
        "books": ([ev(91, "integrity", "a", result="free + cached is not 8")], [0]),
        "no rest": ([ev(90, "quiesced", "a", ok=False, said="2 fetches")], [0]),
        "spoilt by nobody": ([store(1), spoilt(91)], [1]),
        "rotten elsewhere": ([store(1), rotted(2, "b"), spoilt(91)], [2]),
        "another one rotted": ([store(1), rotted(2), spoilt(91, "a", "k1", "k2")], [2]),
        "rotten, and stored anew since": ([rotted(1), store(2), spoilt(91)], [2]),
        "rotten, and the books are wrong too": (
            [store(1), rotted(2), ev(91, "integrity", "a", result="free + cached is not 8")], [2]),
    },
    "tenant-timing": {
        "sooner": (probes(cached_elsewhere=OWN_HITS, cold=SPREAD), list(range(800))),
        "by half a deviation": (
            probes(cached_elsewhere=[one - 0.15 for one in OTHERWISE], cold=SPREAD),
            list(range(800))),
        "later, whatever a tenant's own hits show": (
            probes(cached_elsewhere=[one + 9 for one in SPREAD], cold=SPREAD, cached=[1.0]),
            [0, 1, 2, 3, *range(6, 802)]),
    },
}  # fmt: skip

# line → what is missing → events: neither kept nor broken
OPEN: dict[str, dict[str, list[Event]]] = {
    "stale": {
        "nothing came": [store(1)],
        "of a life that is over, and nobody says when it was asked for": [
            store(1),
            life(2, "a", 2),
            {k: v for k, v in fetch(3).items() if k != "asked_ns"},
        ],
    },
    "foreign": {"no tenants": [ev(1, "evict", "a", key="k1")]},
    "corrupt": {
        "no checksums": [store(1), ev(2, "fetch", "b", key="k1", source="a", cause="")],
        "never stored": [fetch(1), use(2)],
    },
    "half-written": {"nothing was read": [store(1)]},
    "leaked": {"nobody looked": [store(1)]},
    "doubly-owned": {
        "no places": [{k: v for k, v in store(1).items() if k != "place"}],
        "nothing stored": [request(1)],
    },
    "served-after-purge": {
        "never acknowledged": [store(1), purge(2, "asked"), use(3, "a", source="dram")],
        "nothing happened since": [store(1), purge(2, "asked"), purge(3, "acked")],
    },
    "purge-in-time": {
        "nothing purged": [store(1)],
        "of a version that does not say how long": [purge(1, "asked"), purge(900, "acked")],
        "cut off": [purge(1, "asked", within_ns=600 * MS), heard(2)],
        "refused, as the authority could not be reached": [
            purge(1, "asked", within_ns=600 * MS),
            ev(5000, "drill-end"),
        ],
        "the drill ended too soon": [
            purge(1, "asked", within_ns=600 * MS),
            heard(2),
            ev(300, "drill-end"),
        ],
        "the authority could not be told from afar": [
            purge(1, "asked", within_ns=600 * MS),
            heard(2),
            peer(150, "down"),
            peer(900, "up"),
            purge(950, "acked"),
        ],
        "they were parted all along": [
            peer(0, "down"),
            purge(1, "asked", within_ns=600 * MS),
            heard(2),
            purge(950, "acked"),
        ],
    },
    "answered-wrongly": {
        "no cold engine": [request(1), answer(20)],
        "no answers": [request(1)],
        "of another prompt": [request(1), answer(20), cold(99, OTHER)],
    },
    "never-answered": {"cut off": [request(1)], "no requests": [store(1)]},
    "directory-converges": {
        "nobody looked at the table": [held(90, "a", "k1")],
        "nobody looked at a site": [directory(91, k1=["a"])],
    },
    "integrity": {"nobody looked": [store(1)]},
    "served-after-revocation": {
        "nothing was asked since": [request(1), revoked(5), answer(20)],
        "it was not seen": [revoked(5, "did-not-fire"), request(6), answer(20)],
    },
    "tenant-timing": {
        "nobody asked": [request(1), answer(20)],
        "too few": probes(cached_elsewhere=SPREAD[:199], cold=SPREAD, cached=OWN_HITS),
        "no own hits": probes(cached_elsewhere=OTHERWISE, cold=SPREAD),
        "own hits that nothing shows": probes(
            cached_elsewhere=OTHERWISE, cold=SPREAD, cached=SPREAD
        ),
        "errors are no answers": [
            {**event, "status": "error", "error": "late"} if event["op"] == "answer" else event
            for event in probes(cached_elsewhere=OWN_HITS, cold=SPREAD)
        ],
    },
}


def cases(table):
    return [
        pytest.param(line, case, id=f"{line}: {name}")
        for line, named in table.items()
        for name, case in named.items()
    ]


def test_every_checker_has_good_wrong_and_open_histories():
    assert set(GOOD) == set(WRONG) == set(OPEN) == set(CHECKERS)


@pytest.mark.parametrize(("line", "events"), cases(GOOD))
def test_nothing_is_found_where_nothing_is_wrong(line, events):
    finding = CHECKERS[line](history(*events))
    assert finding.ok is True, finding.said
    assert finding.name == line and finding.excerpt == []


@pytest.mark.parametrize(("line", "case"), cases(WRONG))
def test_what_is_wrong_is_found_and_shown_in_the_fewest_events(line, case):
    events, shown = case
    finding = CHECKERS[line](history(*events))
    assert finding.ok is False, finding.said
    assert finding.excerpt == [events[place] for place in shown]
    # The excerpt alone shows the same, and with any event less it does not.
    again = CHECKERS[line](History(finding.excerpt))
    assert again.ok is False and again.excerpt == finding.excerpt
    for left_out in range(len(finding.excerpt)):
        rest = History(e for i, e in enumerate(finding.excerpt) if i != left_out)
        less = CHECKERS[line](rest)
        assert less.ok is not False or less.said != again.said, rest.events


@pytest.mark.parametrize(("line", "events"), cases(OPEN))
def test_what_a_history_cannot_show_is_unknown(line, events):
    finding = CHECKERS[line](history(*events))
    assert finding.ok is None and finding.said


def test_every_line_is_documented():
    doc = Path(__file__).resolve().parents[3] / "docs" / "measures.md"
    section = doc.read_text(encoding="utf-8").split("## What a drill is judged by")[1]
    named = re.findall(r"^\| `([a-z:A-Z.-]+)`", section.split("### Fates")[0], re.MULTILINE)
    made = ["fault-fired:NAME", "expect:NAME.PROMISE"]
    assert sorted(named) == sorted([*JUDGED, *made])


def test_every_operation_that_is_read_is_documented():
    root = Path(__file__).resolve().parents[3]
    doc = (root / "docs" / "history.md").read_text(encoding="utf-8")
    first = [line.split("|")[1] for line in doc.splitlines() if line.startswith("| `")]
    named = {op for cell in first for op in re.findall(r"`([a-z-]+)`", cell)}
    read = {*COPIES, *_SIGNS}
    for folder in ("checker", "drill"):
        for path in (root / "geokv" / "measure" / folder).glob("*.py"):
            for call in re.findall(r"(?:\.of|\.has|\.count|followed)\(([^)]*)\)", path.read_text()):
                read |= set(re.findall(r'"([a-z-]+)"', call))
    assert read <= named, read - named


def test_of_many_offences_the_first_is_shown_and_all_are_counted():
    events = [store(1), use(3, checksums=BAD), use(2, checksums=BAD, request_id="r0")]
    finding = CHECKERS["corrupt"](history(*events))
    assert finding.said.startswith("2 times, first: ")
    assert finding.excerpt[-1]["request_id"] == "r0"
