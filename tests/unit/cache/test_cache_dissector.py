"""Our frames by name: in scapy, and in Wireshark's command line where that is installed."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from cache_sites import SECRET, TENANT, World, make_layout, make_refs, soon, world
from typer.testing import CliRunner

from geokv.cache.substrate.tcp.dissector import GeokvRecord, Seen, explain, read_capture
from geokv.cache.substrate.tcp.keyring import deal
from geokv.cli import app
from geokv.errors import ConfigError
from geokv.paths import CHECKOUT

LAYOUT = make_layout()
LUA = CHECKOUT / "geokv" / "cache" / "substrate" / "tcp" / "geokv.lua"
__all__ = ["world"]


async def talk(world: World, security: str = "mac") -> list[tuple[bytes, bytes]]:
    """What crossed in each connection from b to a while b fetched two chunks, asked for two
    that are not there and pulled some filler: (to the server, to the client)."""
    rings = deal(SECRET, ["a", "b"], tls=True)
    asked: list[bytes] = []
    answered: list[bytes] = []
    a, b, proxy = await world.behind_proxy(
        LAYOUT,
        a={"secret": rings["a"]},
        b={"secret": rings["b"]},
        record=[asked, answered],
        transport={"streams": 1, "security": security},
    )
    refs = make_refs(LAYOUT, 2)
    await a.put(refs)
    await b.cache.warm(1000, soon())
    outcome, _ = await b.pull(refs)
    assert outcome.usable_chunks == 2
    transport = b.cache.transport
    for ref in make_refs(LAYOUT, 2, seed=5):
        memory = memoryview(bytearray(LAYOUT.real_bytes))
        with pytest.raises(Exception, match="no such chunk"):
            await transport.submit("a", ref, memory, soon()).done
    with pytest.raises(Exception, match="no such method"):
        await transport.call("a", "nothing", b"", soon())
    await proxy.close()
    return list(zip(asked, answered, strict=True))


def write(path: Path, sessions: list[tuple[bytes, bytes]], seed: int = 1) -> None:
    """A capture of those bytes, cut into segments of any size, some doubled, some swapped."""
    from scapy.layers.inet import IP, TCP
    from scapy.layers.l2 import Ether
    from scapy.utils import RawPcapWriter

    rng = random.Random(seed)
    writer = RawPcapWriter(str(path), linktype=1, nano=True)
    writer.write_header(None)
    moment = 0

    def send(client: int, to_server: bool, seq: int, flags: str, data: bytes = b"") -> None:
        nonlocal moment
        ends = ("10.0.1.1", "10.0.0.1") if to_server else ("10.0.0.1", "10.0.1.1")
        ports = (client, 7000) if to_server else (7000, client)
        packet = (
            Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
            / IP(src=ends[0], dst=ends[1])
            / TCP(sport=ports[0], dport=ports[1], seq=seq & 0xFFFFFFFF, ack=1, flags=flags)
            / data
        )
        moment += 1000
        writer.write_packet(bytes(packet), sec=1, usec=moment)

    for number, session in enumerate(sessions):
        client = 40000 + number
        start = (2**32 - 500, 77)
        send(client, True, start[0], "S")
        send(client, False, start[1], "SA")
        segments: list[tuple[bool, int, bytes]] = []
        for to_server, first, data in (
            (True, start[0] + 1, session[0][:200]),
            (False, start[1] + 1, session[1][:200]),
            (True, start[0] + 201, session[0][200:]),
            (False, start[1] + 201, session[1][200:]),
        ):
            at = 0
            while at < len(data):
                size = rng.choice((1, 7, 30, 1448, 8948))
                segments.append((to_server, first + at, data[at : at + size]))
                at += size
        for i in range(len(segments) - 1):
            if rng.random() < 0.1 and segments[i][0] == segments[i + 1][0]:
                segments[i], segments[i + 1] = segments[i + 1], segments[i]
        for to_server, seq, data in segments:
            for _ in range(1 + (rng.random() < 0.05)):
                send(client, to_server, seq, "PA", data)
    writer.close()


def names(seen: list[Seen]) -> Counter[str]:
    return Counter(one.name for one in seen)


EXPECTED = {
    "HELLO": 2,
    "CHALLENGE": 2,
    "JOIN": 2,
    "READY": 2,
    "WARM": 1,
    "FILL": 1,
    "GET": 4,
    "CHUNK": 2,
    "MISS": 2,
    "CALL": 1,
    "REPLY": 1,
}


async def test_frames_are_named_with_what_they_say(world: World, tmp_path: Path) -> None:
    path = tmp_path / "link.pcap"
    write(path, await talk(world))
    seen = list(read_capture(path))
    assert names(seen) == EXPECTED
    assert {one.client for one in seen} == {("10.0.1.1", 40000), ("10.0.1.1", 40001)}
    hello = next(one for one in seen if one.name == "HELLO")
    assert hello.to_server and explain(hello.packet)["site"] == "b"
    ready = next(one for one in seen if one.name == "READY")
    assert not ready.to_server and explain(ready.packet)["layout"] == LAYOUT.as_dict()
    refs = make_refs(LAYOUT, 2)
    chunks = [one for one in seen if one.name == "CHUNK"]
    for ref, one in zip(refs, chunks, strict=True):
        said = explain(one.packet)
        assert (said["key"], said["parent"], said["tokens"]) == (ref.key, ref.parent, ref.tokens)
        assert said["tenant"] == TENANT and one.payload_bytes == LAYOUT.wire_bytes
        record = one.packet[GeokvRecord]
        assert bytes(record.key) == ref.key and list(record.tokens) == list(ref.tokens)
        assert len(record.mac) == 16 and len(record.checksums) == LAYOUT.groups
        assert f"key={ref.key.hex()[:8]}" in record.mysummary()
    causes = [explain(one.packet)["cause"] for one in seen if one.name == "MISS"]
    assert causes == ["absent", "absent"]
    fill = next(one for one in seen if one.name == "FILL")
    assert fill.payload_bytes == 1000
    assert [one.time_ns for one in seen] == sorted(one.time_ns for one in seen)


async def test_tls_says_nothing(world: World, tmp_path: Path) -> None:
    path = tmp_path / "link.pcap"
    write(path, await talk(world, "tls"))
    assert names(list(read_capture(path))) == {"TLS": 4}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("seed", [1, 2])
async def test_wireshark_names_them_too(world: World, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "link.pcap"
    write(path, await talk(world), seed)
    fields = ("kind", "sequence", "key", "tenant", "site", "cause", "wire_bytes", "payload_bytes")
    argv = ["tshark", "-X", f"lua_script:{LUA}", "-o", "tcp.reassemble_out_of_order:TRUE"]
    argv += ["-r", str(path), "-Y", "geokv", "-T", "fields", "-E", "occurrence=a"]
    for name in fields:
        argv += ["-e", f"geokv.{name}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Lua" not in done.stderr, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    columns = {
        name: [value for row in rows for value in row[i].split(",") if value]
        for i, name in enumerate(fields)
    }
    ours = list(read_capture(path))
    assert Counter(columns["kind"]) == Counter(str(one.packet.kind) for one in ours if one.packet)
    refs = make_refs(LAYOUT, 2)
    assert columns["key"] == [ref.key.hex() for ref in refs]
    assert columns["wire_bytes"] == [str(LAYOUT.wire_bytes)] * 2
    assert columns["payload_bytes"] == ["1000", *columns["wire_bytes"]]
    assert columns["site"] == ["b", "b"] and columns["cause"] == ["absent", "absent"]
    assert set(columns["tenant"]) == {TENANT}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--link", "x-y", "-o", "f.pcap"], "smoke has no link 'x-y' (links: a-b)"),
        (["--link", "a-b", "-o", "no/f.pcap"], "there is no folder"),
        (["--link", "a-b", "-o", "f.pcap", "--limit", "much"], "--limit: "),
        (["--link", "a-b", "-o", "f.pcap", "--set", "links.a-b.km=-1"], "km: must be ≥ 0"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_boots(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["capture", "smoke", *words])
    assert isinstance(result.exception, ConfigError)
    assert message in result.exception.message
    assert list(tmp_path.iterdir()) == []
