"""What copies in the background take from a fetch, on a line they share."""

import pytest
from fault_sites import LARGE, SiteProcess

from geokv.cache.replicating import Replication
from geokv.lab.build import Lab
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology

CHUNKS = 64
WINDOW_S = 1.5e-3
"""One window of the push at 50 km (a round trip and its queue), and starting the line again."""


@pytest.fixture(scope="module")
def lab():
    with Lab.build(compile_plan(load_topology("pair"), 4, 0)) as built:
        built.change("a-b", km=50, rate="10G")
        yield built


def beside_copies(lab):
    """Seconds of a fetch by itself, and of the same beside copies towards the same site."""
    b = SiteProcess(lab, "b", chunks=4 * CHUNKS, layout=LARGE)
    a = SiteProcess(
        lab, "a", chunks=4 * CHUNKS, layout=LARGE, replication=Replication(("b",), "published")
    )
    try:
        for site in (a, b):
            site.do("connect")
        a.do("put", CHUNKS)
        a.do("rest")
        assert b.do("tier")["cached"] == CHUNKS  # every chunk was copied; now it is asked for
        b.do("drop")
        for site in (a, b):
            site.do("warm", 20_000_000)
        alone = b.do("pull", CHUNKS, on_the_beat=True)
        b.do("drop")
        a.do("put", CHUNKS, seed=1)
        beside = b.do("pull", CHUNKS, on_the_beat=True)
        ended_s = b.do("time")
        begun, during = (
            sum(
                before <= event["t_ns"] / 1e9 - ended_s + beside["took_s"] < after
                for event in b.do("events", "pushed")[CHUNKS:]
            )
            for before, after in ((-1, 0), (0, beside["took_s"]))
        )
        for outcome in (alone, beside):
            assert outcome["wrong"] == [] and outcome["remote"] == CHUNKS
        a.do("rest")
        assert len(b.do("events", "pushed")) == 2 * CHUNKS
        assert {event["cause"] for event in b.do("events", "pushed")} == {""}
        assert a.do("stats")["replicated"] == {"ok": 2 * CHUNKS}
        assert 0 < begun < CHUNKS
        return alone["took_s"], beside["took_s"], during
    finally:
        a.close()
        b.close()


def test_a_fetch_goes_before_copies(lab):
    """32 MiB at 2.5 Gb/s take 0.11 s; sharing the line would take up to twice as long."""
    alone, beside, during = beside_copies(lab)
    print(f"fetch alone {alone * 1e3:.3f} ms, beside copies {beside * 1e3:.3f} ms, {during} copied")
    assert alone == pytest.approx(CHUNKS * LARGE.wire_bytes * 8 / 2.5e9, rel=0.05)
    assert beside <= alone + WINDOW_S
    assert during <= 1  # what was on the line already


def test_the_same_each_time_but_for_clock_reads(lab):
    """Of two fetches in one boot the second reads the clock (256 ns) a few times more or less;
    whole runs, each from its own boot, are the same to the nanosecond."""
    first, second = beside_copies(lab), beside_copies(lab)
    assert second == pytest.approx(first, abs=2e-6)
