"""netem through netlink, with every attribute the kernel knows.

pyroute2's own encoder cuts delays to whole µs and rates to 34 Gbit/s and has no loss models and
no seed. Layouts: ``include/uapi/linux/pkt_sched.h`` and ``netem_change``/``netem_dump`` of
``net/sched/sch_netem.c`` (Linux 6.12).

``netem_change`` keeps what a message does not mention and takes the larger of RATE and RATE64,
so every attribute is sent every time.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from geokv.errors import LabError
from geokv.lab.netlink import CREATE, DUMP, REPLACE, Netlink, NetlinkRefused
from geokv.lab.settings import U32, FourStateU32, GilbertElliottU32, NetemSettings

HANDLE = 0x10000
"""``1:`` as the kernel writes it."""

_NEWQDISC, _DELQDISC, _GETQDISC = 36, 37, 38
_CORR, _REORDER, _CORRUPT, _LOSS, _RATE = 1, 3, 4, 5, 6
_RATE64, _LATENCY64, _JITTER64, _PRNG_SEED = 8, 10, 11, 14
_LOSS_GI, _LOSS_GE = 1, 2
_QOPT = struct.Struct("=IIIIII")
_TICK_NS = 64
"""A packet scheduler tick; the old 32-bit fields are in ticks."""


@dataclass(frozen=True, slots=True)
class QdiscState:
    """A netem qdisc as the kernel shows it.

    Attributes:
        dropped: packets lost since it was made: emulated loss and overflow together.
        queued: packets in it now, those in flight included.
    """

    settings: NetemSettings
    sent_bytes: int
    sent_packets: int
    dropped: int
    queued: int


def encode(settings: NetemSettings) -> bytes:
    """The ``TCA_OPTIONS`` payload for these settings.

    Raises:
        ValueError: the rate is not a whole number of bytes per second.
    """
    if settings.rate_bps % 8:
        raise ValueError(f"netem rates are whole bytes per second, got {settings.rate_bps} bit/s")
    rate_bytes = settings.rate_bps // 8
    parts = [
        _QOPT.pack(
            min(U32, settings.delay_ns // _TICK_NS),
            settings.limit_packets,
            settings.loss_u32,
            settings.reorder_gap,
            settings.duplicate_u32,
            min(U32, settings.jitter_ns // _TICK_NS),
        ),
        attribute(_LATENCY64, struct.pack("=q", settings.delay_ns)),
        attribute(_JITTER64, struct.pack("=q", settings.jitter_ns)),
        attribute(
            _CORR,
            struct.pack(
                "=III",
                settings.delay_correlation_u32,
                settings.loss_correlation_u32,
                settings.duplicate_correlation_u32,
            ),
        ),
        attribute(
            _REORDER,
            struct.pack("=II", settings.reorder_u32, settings.reorder_correlation_u32),
        ),
        attribute(
            _CORRUPT,
            struct.pack("=II", settings.corrupt_u32, settings.corrupt_correlation_u32),
        ),
        attribute(_RATE, struct.pack("=IiIi", min(U32, rate_bytes), 0, 0, 0)),
        attribute(_RATE64, struct.pack("=Q", rate_bytes)),
        attribute(_PRNG_SEED, struct.pack("=Q", settings.seed)),
    ]
    chain = settings.loss_chain
    if isinstance(chain, GilbertElliottU32):
        body = struct.pack("=IIII", chain.p, chain.r, chain.h, chain.k1)
        parts.append(attribute(_LOSS, attribute(_LOSS_GE, body)))
    elif chain is not None:
        body = struct.pack("=IIIII", chain.p13, chain.p31, chain.p32, chain.p14, chain.p23)
        parts.append(attribute(_LOSS, attribute(_LOSS_GI, body)))
    return b"".join(parts)


def decode(options: bytes) -> NetemSettings:
    """The settings in a ``TCA_OPTIONS`` payload, ours or a kernel's dump.

    Raises:
        LabError: the payload has another layout.
    """
    if len(options) < _QOPT.size:
        raise LabError(f"netem options of {len(options)} bytes are too short")
    latency, limit, loss, gap, duplicate, jitter = _QOPT.unpack_from(options)
    values: dict[str, Any] = {
        "delay_ns": latency * _TICK_NS,
        "jitter_ns": jitter * _TICK_NS,
        "limit_packets": limit,
        "loss_u32": loss,
        "reorder_gap": gap,
        "duplicate_u32": duplicate,
    }
    for kind, body in attributes(options[_QOPT.size :]):
        if kind == _LATENCY64:
            (values["delay_ns"],) = struct.unpack_from("=q", body)
        elif kind == _JITTER64:
            (values["jitter_ns"],) = struct.unpack_from("=q", body)
        elif kind == _CORR:
            (
                values["delay_correlation_u32"],
                values["loss_correlation_u32"],
                values["duplicate_correlation_u32"],
            ) = struct.unpack_from("=III", body)
        elif kind == _REORDER:
            values["reorder_u32"], values["reorder_correlation_u32"] = struct.unpack_from(
                "=II", body
            )
        elif kind == _CORRUPT:
            values["corrupt_u32"], values["corrupt_correlation_u32"] = struct.unpack_from(
                "=II", body
            )
        elif kind == _RATE:
            rate = 8 * struct.unpack_from("=I", body)[0]
            values["rate_bps"] = max(values.get("rate_bps", 0), rate)
        elif kind == _RATE64:
            rate = 8 * struct.unpack_from("=Q", body)[0]
            values["rate_bps"] = max(values.get("rate_bps", 0), rate)
        elif kind == _PRNG_SEED:
            (values["seed"],) = struct.unpack_from("=Q", body)
        elif kind == _LOSS:
            for model, chain in attributes(body):
                if model == _LOSS_GE:
                    values["loss_chain"] = GilbertElliottU32(*struct.unpack_from("=IIII", chain))
                elif model == _LOSS_GI:
                    values["loss_chain"] = FourStateU32(*struct.unpack_from("=IIIII", chain))
    return NetemSettings(**values)


def difference(asked: NetemSettings, found: NetemSettings) -> str:
    """Every field that differs, with both values; empty when none does."""
    return ", ".join(
        f"{field.name} asked {getattr(asked, field.name)}, found {getattr(found, field.name)}"
        for field in fields(asked)
        if getattr(asked, field.name) != getattr(found, field.name)
    )


class RawQdiscMessage(tcmsg):  # type: ignore[misc]
    """pyroute2's traffic control message with the options left as bytes."""

    nla_map = tuple(
        (name, "cdata" if name == "TCA_OPTIONS" else kind) for name, kind in tcmsg.nla_map
    )


def apply_netem(link: Netlink, interface: str, settings: NetemSettings) -> None:
    """Make or change an interface's root qdisc and read it back; queued packets stay queued.

    Raises:
        LabError: the kernel refused, or holds something else than asked.
    """
    message = RawQdiscMessage()
    message["index"] = link.index(interface)
    message["handle"] = HANDLE
    message["parent"] = TC_H_ROOT
    message["attrs"] = [("TCA_KIND", "netem"), ("TCA_OPTIONS", encode(settings))]
    try:
        link.request(message, _NEWQDISC, CREATE | REPLACE, f"netem on {interface}")
    except NetlinkRefused as error:
        if error.code == errno.ENOENT:
            error.hint = "this kernel has no sch_netem; --clock virtual boots one that has it"
        raise
    wrong = difference(settings, read_netem(link, interface).settings)
    if wrong:
        raise LabError(f"netem on {interface} is not as asked: {wrong}")


def read_netem(link: Netlink, interface: str) -> QdiscState:
    """The root netem of an interface as the kernel shows it.

    Raises:
        LabError: it has none.
    """
    index = link.index(interface)
    message = RawQdiscMessage()
    message["index"] = index
    for reply in link.request(message, _GETQDISC, DUMP, f"qdisc of {interface}"):
        if reply["index"] != index or reply.get_attr("TCA_KIND") != "netem":
            continue
        stats = reply.get_attr("TCA_STATS")
        return QdiscState(
            settings=decode(bytes(reply.get_attr("TCA_OPTIONS"))),
            sent_bytes=stats["bytes"],
            sent_packets=stats["packets"],
            dropped=stats["drop"],
            queued=stats["qlen"],
        )
    raise LabError(f"interface {interface} has no netem")


def attribute(kind: int, body: bytes) -> bytes:
    """One netlink attribute: length, type, body, padding to four bytes."""
    return struct.pack("=HH", 4 + len(body), kind) + body + b"\0" * (-len(body) % 4)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each netlink attribute.

    Raises:
        LabError: one is cut short.
    """
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4 or offset + length > len(data):
            raise LabError(f"netlink attributes are cut short at byte {offset}")
        yield kind & 0x3FFF, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
