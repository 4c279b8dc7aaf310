"""One link compiled to integers: its delay, rate, queue, losses and windows.

One-way delay = km × µs/km × detour + equipment (5 µs/km: light in glass). Line rates are divided
by the byte scale S, times never are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from geokv.errors import ConfigError
from geokv.lab.profiles import Profile, load_profile
from geokv.lab.settings import GilbertElliottU32, NetemSettings, TcpSettings, share_u32
from geokv.lab.topology import GilbertElliott, Link, ends
from geokv.units import NS_PER_S

ETHERNET_BYTES = 14
IP_BYTES = 20
TCP_BYTES = 20 + 12
"""TCP header with the timestamps option (RFC 7323), padded."""

_LARGEST_BUFFER = 2**31 - 1
_INITIAL_FLOOR = 2**20
_LIMIT_FLOOR = 1000
_ROUTER_FLOOR = 40
"""Packets of a ``router`` queue at the least: what a check's train of full frames needs."""
_LIMIT_TOP = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """One link in integers.

    Attributes:
        forward: the direction from ``a`` to ``b``; ``backward`` the other.
        rtt_ns: asked round trip of a packet of no length on an idle link.
        payload_rate_bps: TCP payload left of ``rate_bps`` after Ethernet, IP and TCP headers.
        bdp_bytes: bandwidth-delay product of the line.
        offloads: whether segmentation offloads stay on (off when single packets matter).
        protection_ns: from the loss of its light to the moved routes; None is never.
        revertive: whether the routes come back with the light.
    """

    link: str
    a: str
    b: str
    km: float
    kind: str
    forward: NetemSettings
    backward: NetemSettings
    rate_bps: int
    payload_rate_bps: int
    delay_ns: int
    jitter_ns: int
    rtt_ns: int
    bdp_bytes: int
    mtu: int
    tcp: TcpSettings
    offloads: bool
    protection_ns: int | None
    revertive: bool

    @property
    def mean_loss(self) -> float:
        """Long-run share of packets lost in one direction."""
        return self.forward.mean_loss


def bdp(rate_bps: int, rtt_ns: int) -> int:
    """Bandwidth-delay product in bytes, rounded up."""
    return -(-rate_bps * rtt_ns // (8 * NS_PER_S))


def payload_rate(rate_bps: int, mtu: int) -> int:
    """TCP payload bit/s of a line at ``rate_bps`` (Ethernet header counted, preamble not)."""
    return rate_bps * (mtu - IP_BYTES - TCP_BYTES) // (mtu + ETHERNET_BYTES)


def wire_time_ns(size_bytes: int, rate_bps: int) -> int:
    """Time a frame of ``size_bytes`` (Ethernet header included) occupies the line."""
    return size_bytes * 8 * NS_PER_S // rate_bps if rate_bps else 0


@dataclass(frozen=True, slots=True)
class Line:
    """The part of a link plan that does not depend on other links."""

    profile: Profile
    delay_ns: int
    jitter_ns: int
    rate_bps: int
    mtu: int
    congestion: str


def line_of(name: str, link: Link, byte_scale: int) -> Line:
    """What a link is by itself.

    Raises:
        ConfigError: a value that cannot be emulated, with its path.
    """
    profile = load_profile(link.kind)
    detour = profile.detour.value if link.detour is None else link.detour
    jitter_s = profile.jitter.value if link.jitter is None else link.jitter
    rate_bps = (profile.rate.value if link.rate is None else link.rate) // byte_scale
    rate_bps -= rate_bps % 8  # the kernel counts whole bytes per second
    if rate_bps <= 0:
        raise ConfigError(
            f"links.{name}.rate: {link.rate} bit/s leave nothing at byte scale {byte_scale}"
        )
    glass_ns = link.km * profile.us_per_km.value * 1000 * detour
    delay_ns = round(glass_ns + (profile.equipment.value + link.extra_delay) * NS_PER_S)
    jitter_ns = round(jitter_s * NS_PER_S)
    if jitter_ns > delay_ns:
        raise ConfigError(
            f"links.{name}.jitter: must be ≤ the one-way delay ({delay_ns / 1000:g} µs), "
            f"got {jitter_ns / 1000:g} µs"
        )
    if link.reorder and not delay_ns:
        raise ConfigError(f"links.{name}.reorder: nothing is overtaken on a link without delay")
    return Line(
        profile,
        delay_ns,
        jitter_ns,
        rate_bps,
        profile.mtu.value if link.mtu is None else link.mtu,
        link.congestion or profile.congestion.value,
    )


def window_bytes(lines: Sequence[Line], rate_bps: int, rtt_ns: int) -> int:
    """A TCP window for a path over ``lines``, by the widest of their profiles."""
    factor = max(line.profile.window_bdps.value for line in lines)
    floor = max(line.profile.window_floor.value for line in lines)
    return min(_LARGEST_BUFFER, max(floor, round(factor * bdp(rate_bps, rtt_ns))))


def tcp_of(congestion: str, window_bytes: int, idle_restart: bool = False) -> TcpSettings:
    """Settings of a namespace with windows of so many bytes."""
    initial = min(window_bytes, max(_INITIAL_FLOOR, window_bytes // 2))
    return TcpSettings(
        congestion=congestion,
        rmem_bytes=(4096, initial, window_bytes),
        wmem_bytes=(4096, _INITIAL_FLOOR, window_bytes),
        slow_start_after_idle=int(idle_restart),
    )


def link_of(name: str, link: Link, line: Line, tcp: dict[str, TcpSettings], seed: int) -> LinkPlan:
    """The plan of a link between sites with these settings.

    Args:
        seed: of the network; each direction has a stream of its own.
    """
    a, b = ends(name)
    rtt_ns = 2 * line.delay_ns
    bdp_bytes = bdp(line.rate_bps, rtt_ns)
    router = line.profile.queue.value == "router"
    limit = _queue(line, bdp_bytes, max(tcp[a].wmem_bytes[2], tcp[b].wmem_bytes[2]))
    loss_share, chain = _loss(link, line.profile)

    def direction(arrow: str) -> NetemSettings:
        return NetemSettings(
            delay_ns=line.delay_ns,
            jitter_ns=line.jitter_ns,
            rate_bps=line.rate_bps,
            limit_packets=limit,
            loss_u32=share_u32(loss_share),
            loss_chain=chain,
            corrupt_u32=share_u32(link.corrupt),
            reorder_u32=share_u32(link.reorder),
            reorder_gap=1 if link.reorder else 0,
            duplicate_u32=share_u32(link.duplicate),
            seed=stream_seed(seed, f"{name}{arrow}"),
        )

    forward, backward = direction(">"), direction("<")
    window = max(tcp[a].rmem_bytes[2], tcp[b].rmem_bytes[2])
    return LinkPlan(
        link=name,
        a=a,
        b=b,
        km=link.km,
        kind=link.kind,
        forward=forward,
        backward=backward,
        rate_bps=line.rate_bps,
        payload_rate_bps=payload_rate(line.rate_bps, line.mtu),
        delay_ns=line.delay_ns,
        jitter_ns=line.jitter_ns,
        rtt_ns=rtt_ns,
        bdp_bytes=bdp_bytes,
        mtu=line.mtu,
        tcp=tcp_of(line.congestion, window, link.idle_restart),
        offloads=not forward.disturbs and not router,
        protection_ns=_protection_ns(link, line.profile),
        revertive=link.revertive,
    )


def _queue(line: Line, bdp_bytes: int, window_bytes: int) -> int:
    """Packets of one direction's queue; netem counts what is on its way too."""
    if line.profile.queue.value == "router":
        # Half a product is on its way in one direction.
        held = bdp_bytes * (0.5 + line.profile.queue_bdps.value)
        return max(_ROUTER_FLOOR, -(-int(held) // line.mtu))
    held = bdp_bytes * max(2.0, line.profile.queue_bdps.value)
    if line.profile.queue.value == "lossless":
        held = max(held, bdp_bytes + line.profile.queue_windows.value * window_bytes)
    return min(_LIMIT_TOP, max(_LIMIT_FLOOR, -(-int(held) // line.mtu)))


def _protection_ns(link: Link, profile: Profile) -> int | None:
    if link.protection == "never":
        return None
    value = profile.protection_time.value if link.protection is None else link.protection
    return round(value * NS_PER_S)


def _loss(link: Link, profile: Profile) -> tuple[float, GilbertElliottU32 | None]:
    model = link.loss_model
    if isinstance(model, GilbertElliott):
        return 0.0, GilbertElliottU32(
            p=share_u32(model.good_to_bad),
            r=share_u32(model.bad_to_good),
            h=share_u32(1 - model.loss_in_bad),
            k1=share_u32(model.loss_in_good),
        )
    return (profile.loss.value if link.loss is None else link.loss), None


def stream_seed(seed: int, stream: str) -> int:
    """A 64-bit seed for one named stream."""
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
    return int.from_bytes(digest)
