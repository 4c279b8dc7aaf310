"""Fault reports that need a network: cut without a word, squeezed, frozen, killed, restarted.

Named by the ids of the project's collection of reports. The verdict is ``ok`` or
``degraded``: what is handed over is right, every wait ends, nothing leaks.
"""

import contextlib

import pytest
from fault_sites import LARGE, SiteProcess

from geokv.lab.build import Lab
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology


@pytest.fixture(scope="module")
def shared():
    with Lab.build(compile_plan(load_topology("pair"), 4, 0)) as lab:
        yield lab


@pytest.fixture
def lab(shared):
    shared.change("a-b", km=50, rate="10G", loss=None)
    yield shared
    shared.change("a-b", km=50, rate="10G", loss=None)


@contextlib.contextmanager
def sites(lab, chunks=64, a=None, **more):
    """Site a, which provides, and site b, which asks and keeps the directory."""
    b = SiteProcess(lab, "b", chunks=chunks, **more)
    provider = None
    try:
        provider = SiteProcess(lab, "a", chunks=chunks, **{**more, **(a or {})})
        provider.do("connect")
        b.do("connect")
        yield provider, b
    finally:
        b.close()
        if provider is not None:
            provider.close()


def right(*outcomes):
    """Nothing that was handed over was another's or damaged."""
    for outcome in outcomes:
        assert outcome["wrong"] == []
        assert outcome["usable"] + sum(outcome["misses"].values()) > 0


def at_rest(*processes):
    for process in processes:
        stats = process.do("rest")
        assert stats["reserved"] == stats["pinned"] == stats["leaving"] == 0
        assert stats["free"] + stats["cached"] == stats["slots"]


@pytest.mark.parametrize("security", ["mac", "tls"])
def test_a_fetch_over_the_link_is_right(lab, security):
    with sites(lab, security=security) as (a, b):
        a.do("put", 16)
        outcome = b.do("pull", 16)
        right(outcome)
        assert (outcome["usable"], outcome["misses"]) == (16, {})
        at_rest(a, b)


def test_f08_a_peer_that_takes_the_fetch_and_never_answers(lab):
    with sites(lab) as (a, b):
        a.do("put", 8)
        a.freeze()
        outcome = b.do("pull", 8, seconds=0.5)
        right(outcome)
        assert outcome["usable"] == 0 and outcome["misses"] == {"timeout": 1}
        assert 0.5 <= outcome["took_s"] < 0.51
        a.thaw()
        b.do("sleep", 1.0)
        outcome = b.do("pull", 8)
        assert outcome["usable"] == 8 and not outcome["wrong"]
        at_rest(a, b)


def test_f10_a_line_that_falls_to_a_two_hundredth_in_mid_fetch(lab):
    with sites(lab) as (a, b):
        a.do("put", 48)
        b.do("warm")
        b.order("pull", 48, seconds=5.0)
        lab.change("a-b", rate="50M")
        outcome = b.result()
        right(outcome)
        assert outcome["usable"] == 48 and outcome["misses"] == {}
        # 48 chunks of 64 KiB at 50 Mb/s over the byte scale of 4
        assert outcome["took_s"] > 0.5
        b.do("drop")
        outcome = b.do("pull", 48, seconds=0.2)
        right(outcome)
        assert outcome["usable"] < 48 and outcome["misses"] == {"timeout": 1}
        assert outcome["took_s"] < 0.22
        lab.change("a-b", rate="10G")
        b.do("sleep", 3.0)
        b.do("drop")
        outcome = b.do("pull", 48)
        right(outcome)
        assert outcome["usable"] == 48
        at_rest(a, b)


def test_f11_a_peer_behind_a_link_that_drops_everything(lab):
    """No reset comes. Only the first requests pay their deadline; when the link is well
    again, so is the fetch, by itself."""
    with sites(lab) as (a, b):
        a.do("put", 4)
        assert b.do("pull", 4)["usable"] == 4
        b.do("drop")
        lab.change("a-b", loss=1.0)
        outcomes = b.do("pulls", 20, 4, seconds=0.2)
        right(*outcomes)
        paid = [outcome for outcome in outcomes if outcome["took_s"] > 0.1]
        assert 1 <= len(paid) <= 4
        assert all(outcome["usable"] == 0 for outcome in outcomes)
        causes = [set(outcome["misses"]) for outcome in outcomes]
        assert causes[0] == {"timeout"} and causes[-1] == {"unreachable"}
        assert sum(outcome["took_s"] for outcome in outcomes) < 1.5
        lab.change("a-b", loss=None)
        b.do("sleep", 8.0)
        again = b.do("pulls", 3, 4)
        assert again[-1]["usable"] == 4, again
        right(*again)
        at_rest(a, b)


def test_f13_a_reader_that_is_killed_while_it_holds_a_pin(lab):
    """Its last word is lost with the link, so the lease must do."""
    with sites(lab, chunks=4, lease_s=0.3, send_buffer_bytes=16384, layout=LARGE) as (a, b):
        a.do("put", 4)
        b.do("warm", 10_000)
        lab.change("a-b", rate="4M")
        b.order("pull", 4)
        a.do("sleep", 0.05)
        assert a.do("tier")["pinned"] >= 1
        lab.change("a-b", loss=1.0)
        b.kill()
        a.do("sleep", 0.4)
        assert a.do("tier")["pinned"] == 0
        a.do("churn", 0.05)
        at_rest(a)
        assert a.do("tier")["evictions"] >= 4


def test_f04_a_lease_that_is_shorter_than_a_slow_read(lab):
    """The lease is 200 ms, a chunk needs more, and the writer allocates all the while."""
    with sites(lab, chunks=8, lease_s=0.2, send_buffer_bytes=16384, layout=LARGE) as (a, b):
        a.do("put", 4)
        b.do("warm", 10_000)
        # One chunk in 0.4 s, and the byte scale of 4
        rate = LARGE.wire_bytes * 8 * 4 / 0.4
        lab.change("a-b", rate=f"{rate / 1e6:.3f}M")
        a.do("churn", 3.0)
        outcome = b.do("pull", 4, seconds=4.0)
        right(outcome)
        assert outcome["usable"] == 0 and sum(outcome["misses"].values()) == 1
        assert set(outcome["misses"]) <= {"lease", "absent"}
        lab.change("a-b", rate="10G")
        b.do("sleep", 1.0)
        a.do("put", 4, seed=7)
        outcome = b.do("pull", 4, seed=7)
        right(outcome)
        assert outcome["usable"] == 4
        at_rest(a, b)


def test_f20_a_peer_that_restarts_on_its_address_ten_times_under_load(lab):
    """No request to a new life uses anything of an old one."""
    b = SiteProcess(lab, "b", chunks=256)
    lives = []
    try:
        for life in range(10):
            a = SiteProcess(lab, "a")
            try:
                a.do("connect")
                a.do("put", 8, seed=0)
                outcome = b.do("pull", 8, seed=0)
                # The first request after a restart may find the old connections dead.
                right(outcome)
                if outcome["usable"] < 8:
                    assert set(outcome["misses"]) <= {"unreachable", "timeout"}
                    b.do("sleep", 1.0)
                    outcome = b.do("pull", 8, seed=0)
                    right(outcome)
                assert outcome["usable"] == 8, (life, outcome)
                fetched = [event for event in b.do("events", "fetch") if not event["cause"]]
                lives.append({event["incarnation"] for event in fetched[-outcome["remote"] :]})
                b.do("drop")
                b.order("pulls", 3, 8, seed=0, seconds=1.0)  # and killed under it
            finally:
                a.kill()
            right(*b.result())
            b.do("drop")
        assert all(len(life) == 1 for life in lives)
        assert len(set.union(*lives)) == 10
        at_rest(b)
    finally:
        b.close()


def test_every_fault_ends_the_same_way_twice(lab):
    """Virtual time: the same cut takes the same nanoseconds."""

    def once():
        with sites(lab, incarnation=7) as (a, b):
            a.do("put", 8)
            b.do("warm")
            a.freeze()
            return b.do("pull", 8, seconds=0.25)["took_s"]

    first, second = once(), once()
    assert abs(first - second) < 0.001
