"""Codecs take the time they are charged and no other, on a line where everything else is exact."""

import pytest
from fault_sites import LARGE, SiteProcess

from geokv.cache.codec_cost import CodecCost
from geokv.lab.build import Lab
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology

RATE_BPS = 2.5e9
RTT_S = 0.5e-3
CHUNKS = 32
FREE = CodecCost(1e18, 1e18)
EXACT_S = 5e-6
"""Of clock reads and of requests: the difference of two runs has not a packet more."""


@pytest.fixture(scope="module")
def lab():
    with Lab.build(compile_plan(load_topology("pair"), 4, 0)) as built:
        built.change("a-b", km=50, rate="10G")
        yield built


def cost(encode_s, decode_s):
    """So that a chunk takes so long."""
    return CodecCost(LARGE.wire_bytes / encode_s, LARGE.wire_bytes / decode_s)


def fetches(lab, codec, charged):
    """A fetch of one chunk, and one of many."""
    codecs = {"codec": codec, "codec_costs": dict.fromkeys(("zstd", "fp8", "int8"), charged)}
    b = SiteProcess(lab, "b", chunks=4 * CHUNKS, layout=LARGE, **codecs)
    a = SiteProcess(lab, "a", chunks=4 * CHUNKS, layout=LARGE, **codecs)
    try:
        for site in (a, b):
            site.do("connect")
        a.do("put", 1, seed=1, even=True)
        a.do("put", CHUNKS, even=True)
        for site in (a, b):
            site.do("warm", 20_000_000)
        one = b.do("pull", 1, seed=1, on_the_beat=True, even=True)
        many = b.do("pull", CHUNKS, on_the_beat=True, even=True)
        for outcome, count in ((one, 1), (many, CHUNKS)):
            assert outcome["wrong"] == [] and outcome["remote"] == count
        for site in (a, b):
            site.do("rest")
        return one, many
    finally:
        a.close()
        b.close()


def test_a_fetch_is_its_coded_bytes_and_what_coding_them_is_charged(lab):
    encode_s, decode_s = 0.9e-3, 1.7e-3
    plain, _ = fetches(lab, "none", cost(encode_s, decode_s))
    free, _ = fetches(lab, "zstd", FREE)
    charged, many = fetches(lab, "zstd", cost(encode_s, decode_s))
    for name, found in (("plain", plain), ("free", free), ("charged", charged), ("many", many)):
        print(name, found)
    assert plain["wire_bytes"] == LARGE.wire_bytes
    shorter = charged["wire_bytes"]
    assert shorter == free["wire_bytes"] < 0.6 * LARGE.wire_bytes
    # Coding makes the wire shorter by its bytes (headers are 0.7 % of a full frame) ...
    wire_s = (LARGE.wire_bytes - shorter) * 8 / RATE_BPS
    assert plain["took_s"] - free["took_s"] == pytest.approx(wire_s, rel=0.01, abs=EXACT_S)
    assert plain["completion_s"] < EXACT_S and free["completion_s"] < EXACT_S
    # ... and what it is charged comes on top, decoding behind the last byte.
    assert charged["took_s"] == pytest.approx(free["took_s"] + encode_s + decode_s, abs=EXACT_S)
    assert charged["completion_s"] == pytest.approx(decode_s, abs=EXACT_S)
    # Many hide behind the slowest of the three: a chunk's wire takes less than its decoding.
    alone_s = charged["took_s"]
    assert shorter * 8 / RATE_BPS < decode_s
    assert many["took_s"] == pytest.approx(alone_s + (CHUNKS - 1) * decode_s, rel=0.002)
    assert many["completion_s"] > CHUNKS * (decode_s - encode_s) * 0.9


def test_a_slow_encoder_is_what_a_fetch_waits_for(lab):
    encode_s, decode_s = 2.0e-3, 0.1e-3
    one, many = fetches(lab, "zstd", cost(encode_s, decode_s))
    assert many["took_s"] == pytest.approx(one["took_s"] + (CHUNKS - 1) * encode_s, rel=0.005)
    assert many["completion_s"] == pytest.approx(decode_s, abs=EXACT_S)


def test_each_time_alike(lab):
    """Two runs have the same nanoseconds; two fetches in one run differ by a few clock reads."""
    first, second = (fetches(lab, "zstd", cost(0.9e-3, 1.7e-3)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one["took_s"] == pytest.approx(other["took_s"], abs=8 * 256e-9)
        assert one["completion_s"] == pytest.approx(other["completion_s"], abs=8 * 256e-9)
