"""A second opinion on a link by tools that are not ours: ping and iperf3.

Used by ``geokv check`` and the tests; dearer than our own probes and bounded by bytes, not time,
because in virtual time ten seconds at 100 Gb/s are 125 GB of real work.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

from geokv.errors import LabError
from geokv.lab.build import Lab
from geokv.lab.check import TOLERANCES, Clock, wait_idle
from geokv.lab.enter import in_netns
from geokv.lab.link_plan import LinkPlan, wire_time_ns

_SUMMARY = re.compile(
    r"(?P<sent>\d+) packets transmitted, (?P<got>\d+) received.*?(?P<loss>[\d.]+)% packet loss"
)
_RTT = re.compile(r"= (?P<min>[\d.]+)/(?P<avg>[\d.]+)/(?P<max>[\d.]+)/(?P<dev>[\d.]+) ms")
_PORT = 5201
_PING_STEP_NS = 1_000


@dataclass(frozen=True, slots=True)
class PingResult:
    """What ping says: whole µs are its resolution."""

    sent: int
    received: int
    rtt_min_ns: int | None
    rtt_mean_ns: int | None
    rtt_max_ns: int | None

    @property
    def loss(self) -> float:
        """Share of echoes that did not come back (both directions)."""
        return 1 - self.received / self.sent


@dataclass(frozen=True, slots=True)
class IperfResult:
    """What iperf3 says of one direction, slow start included."""

    bytes: int
    seconds: float
    goodput_bps: float
    retransmits: int


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """Both tools on one link."""

    link: str
    ping: PingResult
    forward: IperfResult
    backward: IperfResult
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether both tools agree with the plan."""
        return not self.problems

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def second_opinion(
    lab: Lab, link: str, *, pings: int = 20, clock: Clock = "virtual"
) -> SecondOpinion:
    """Run ping and iperf3 over one link; judged where no packet is meant to be disturbed.

    Raises:
        LabError: a tool is missing or fails.
    """
    plan, tolerance = lab.link_plan(link), TOLERANCES[clock]
    wait_idle(lab, link)
    echoes = ping(lab, link, count=pings)
    ways = (iperf(lab, link), iperf(lab, link, reverse=True))
    problems = []
    if not plan.forward.disturbs:
        allowed = max(tolerance.rtt_share * plan.rtt_ns, tolerance.rtt_floor_ns, _PING_STEP_NS)
        mean = echoes.rtt_mean_ns
        # 98 bytes: ICMP header and payload of ping's default, IP and Ethernet
        expected = plan.rtt_ns + 2 * wire_time_ns(98, plan.rate_bps)
        if mean is None or abs(mean - expected) > allowed:
            problems.append(f"link {link}: ping says {mean} ns, the plan {expected} ns")
        for near, way in zip((plan.a, plan.b), ways, strict=True):
            floor = iperf_floor(plan, way.bytes)
            ratio = way.goodput_bps / plan.payload_rate_bps
            if not floor <= ratio <= tolerance.goodput_ceiling:
                problems.append(
                    f"link {link}: iperf3 from {near} reaches {ratio:.3f} of the plan's payload "
                    f"rate, at least {floor:.3f} expected"
                )
    return SecondOpinion(link, echoes, *ways, tuple(problems))


def ping(lab: Lab, link: str, *, count: int = 20, interval_s: float = 0.01) -> PingResult:
    """ICMP echoes from side a to side b of a link.

    Raises:
        LabError: ping is missing or prints something else than results.
    """
    plan = lab.link_plan(link)
    deadline_s = 30 + count * (interval_s + plan.rtt_ns / 1e9)
    command = ["ping", "-n", "-q", "-c", str(count), "-i", str(interval_s)]
    command += ["-W", "2", lab.link_address(link, plan.b)]
    text = _run(lab.netns(plan.a), command, deadline_s, accept=(0, 1))
    summary, rtt = _SUMMARY.search(text), _RTT.search(text)
    if summary is None:
        raise LabError(f"ping on link {link} printed no summary: {text[-200:]!r}")
    times = [round(float(rtt[name]) * 1e6) if rtt else None for name in ("min", "avg", "max")]
    return PingResult(int(summary["sent"]), int(summary["got"]), *times)


def iperf_bytes(plan: LinkPlan) -> int:
    """Bytes to send: an eighth of a second or 60 bandwidth-delay products, at most 512 MiB."""
    return min(2**29, max(plan.rate_bps // 64, 60 * plan.bdp_bytes, 2**20))


def iperf_floor(plan: LinkPlan, size_bytes: int) -> float:
    """Share of the payload rate that iperf3's own figure must reach.

    Its time holds the hand-shakes, slow start (ten segments doubling each round trip until the
    line is full) and up to 20 ms of its own timers.
    """
    ideal_s = size_bytes * 8 / plan.payload_rate_bps
    doublings = math.log2(max(1.0, plan.bdp_bytes / (10 * plan.mtu)))
    return 0.95 * ideal_s / (ideal_s + (doublings + 3) * plan.rtt_ns / 1e9 + 0.02)


def iperf(lab: Lab, link: str, *, reverse: bool = False, size_bytes: int = 0) -> IperfResult:
    """One TCP transfer from side a to side b, or back.

    Args:
        size_bytes: how much; by default enough for 0.95 of the payload rate.

    Raises:
        LabError: iperf3 is missing or reports an error.
    """
    plan = lab.link_plan(link)
    size_bytes = size_bytes or iperf_bytes(plan)
    near, far = (plan.b, plan.a) if reverse else (plan.a, plan.b)
    address = lab.link_address(link, far)
    deadline_s = 60 + 20 * size_bytes * 8 / plan.payload_rate_bps
    _need("iperf3")
    with in_netns(lab.netns(far)):
        server = subprocess.Popen(
            ["iperf3", "-s", "-1", "-p", str(_PORT), "-B", address, "--forceflush"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if "listening" in line:
                break
        command = ["iperf3", "-c", address, "-p", str(_PORT), "-n", str(size_bytes), "-J"]
        command += ["-Z", "-l", "1M", "-C", "reno", "-i", "0"]
        text = _run(lab.netns(near), command, deadline_s, accept=(0, 1))
        result = json.loads(text)
        if "error" in result:
            raise LabError(f"iperf3 on link {link}: {result['error']}")
        received = result["end"]["sum_received"]
        return IperfResult(
            received["bytes"],
            received["seconds"],
            received["bits_per_second"],
            result["end"]["sum_sent"].get("retransmits", 0),
        )
    finally:
        server.kill()
        server.communicate(timeout=10)


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        raise LabError(f"{tool} is missing", f"sudo apt-get install {_PACKAGES[tool]}")


_PACKAGES = {"ping": "iputils-ping", "iperf3": "iperf3"}


def _run(netns: str, command: list[str], deadline_s: float, accept: tuple[int, ...]) -> str:
    _need(command[0])
    with in_netns(netns):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    try:
        text, _ = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        raise LabError(f"{command[0]} did not end within {deadline_s:.0f} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=10)
    if process.returncode not in accept:
        raise LabError(f"{' '.join(command)} failed ({process.returncode}): {text[-300:]}")
    return text
