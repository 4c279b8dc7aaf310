"""Packets of a link on disk: ours by name, all of them on demand, and none that cost time."""

import socket
import time
from collections import Counter

import pytest
from fault_sites import KV_PORT, LAYOUT, SiteProcess
from scapy.layers.inet import TCP
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

from geokv.cache.substrate.tcp.dissector import explain, read_capture
from geokv.errors import ConfigError
from geokv.lab.build import Lab
from geokv.lab.capture import LinkCapture
from geokv.lab.enter import in_netns
from geokv.lab.independent import ping
from geokv.lab.outage import cut, restore
from geokv.lab.plan import compile_plan
from geokv.lab.topology import load_topology
from geokv.lab.wiring import to_neighbour


@pytest.fixture(scope="module")
def lab():
    with Lab.build(compile_plan(load_topology("pair"), 4, 0)) as lab:
        yield lab


def exchange(lab, security="mac"):
    """b fetches four chunks from a; how long that took."""
    b = SiteProcess(lab, "b", security=security)
    a = SiteProcess(lab, "a", security=security)
    try:
        a.do("connect")
        b.do("connect")
        a.do("put", 4)
        b.do("warm", 100_000)
        outcome = b.do("pull", 4)
        assert outcome["usable"] == 4
        return outcome["took_s"]
    finally:
        a.close()
        b.close()


@pytest.mark.parametrize("site", ["a", "b"])
def test_frames_of_an_exchange(lab, tmp_path, site):
    path = tmp_path / "link.pcap"
    with LinkCapture(lab, "a-b", path, site=site, port=KV_PORT) as eye:
        exchange(lab)
    assert eye.packets > 30 and eye.dropped == eye.beyond == 0
    seen = list(read_capture(path))
    counts = Counter(one.name for one in seen)
    assert counts["CHUNK"] == 4 and counts["GET"] == 4
    assert counts["HELLO"] == counts["CHALLENGE"] == counts["JOIN"] == counts["READY"] == 10
    assert "unreadable" not in counts
    chunks = [one for one in seen if one.name == "CHUNK"]
    assert {one.payload_bytes for one in chunks} == {LAYOUT.wire_bytes}
    # A GET leaves b and its answer comes 500 µs there and back later, seen at either end.
    asked = {explain(one.packet)["key"]: one.time_ns for one in seen if one.name == "GET"}
    waits = [one.time_ns - asked[explain(one.packet)["key"]] for one in chunks]
    if site == "b":
        assert min(waits) >= 500_000
    else:
        assert min(waits) < 500_000


def packets(path):
    """The ports of each packet; none where it has none."""
    with RawPcapReader(str(path)) as reader:
        parsed = [Ether(raw) for raw, _ in reader]
    return [(one[TCP].sport, one[TCP].dport) if TCP in one else () for one in parsed]


def test_capturing_costs_no_virtual_time(lab, tmp_path):
    plain = exchange(lab)
    with LinkCapture(lab, "a-b", tmp_path / "link.pcap"):
        watched = exchange(lab)
    assert watched == pytest.approx(plain, abs=20e-6)


def test_tls_is_captured_and_stays_closed(lab, tmp_path):
    path = tmp_path / "link.pcap"
    with LinkCapture(lab, "a-b", path, port=KV_PORT):
        exchange(lab, "tls")
    assert {one.name for one in read_capture(path)} == {"TLS"}
    assert b"GKVR" not in path.read_bytes()


def test_a_fibre_that_goes_dark_ends_no_capture(lab, tmp_path):
    path = tmp_path / "link.pcap"
    with LinkCapture(lab, "a-b", path) as eye:
        cut(lab, "a-b")
        time.sleep(0.1)
        restore(lab, "a-b")
        for end in ("a", "b"):
            lab.site_netlink(end).wait_up(to_neighbour("b" if end == "a" else "a"))
        assert ping(lab, "a-b", count=3).received == 3
    assert eye.packets == 6 and len(packets(path)) == 6


def test_only_the_kv_port_or_everything(lab, tmp_path):
    for port, found in ((KV_PORT, 0), (None, 6)):
        path = tmp_path / f"{port}.pcap"
        with LinkCapture(lab, "a-b", path, port=port):
            assert ping(lab, "a-b", count=3).received == 3
            with in_netns(lab.netns("b")):
                listener = socket.create_server((lab.address("b"), 9999))
            with in_netns(lab.netns("a")):
                socket.create_connection((lab.address("b"), 9999)).close()
            listener.close()
        others = [packet for packet in packets(path) if KV_PORT not in packet]
        assert len(others) >= found and (found or not others)


def test_a_full_capture_goes_on_counting(lab, tmp_path):
    path = tmp_path / "link.pcap"
    with LinkCapture(lab, "a-b", path, port=KV_PORT, most_bytes=50_000) as eye:
        exchange(lab)
    assert 0 < eye.kept_bytes <= 50_000 and eye.beyond > 0
    assert path.stat().st_size < 60_000
    assert "more beyond" in str(eye)


def test_what_cannot_be_captured_is_said(lab, tmp_path):
    with pytest.raises(ConfigError, match=r"links\.x-y: no such link"):
        LinkCapture(lab, "x-y", tmp_path / "link.pcap")
    with pytest.raises(ConfigError, match="has no end 'c'"):
        LinkCapture(lab, "a-b", tmp_path / "link.pcap", site="c")
    with pytest.raises(ConfigError, match="cannot be written"):
        LinkCapture(lab, "a-b", tmp_path / "no" / "link.pcap")
    with pytest.raises(ConfigError, match="cannot be read as a capture"):
        list(read_capture(tmp_path / "nothing.pcap"))
