"""Packets that vanish without a word: no carrier lost, no reset, no ICMP.

A rule sits at the ingress of a fibre's port, where packets of one site enter. It drops all of
them, or those between two networks, and counts. The emulated line behind it is not touched, so
rules and changes of a link do not know of each other. Layouts: ``include/uapi/linux/pkt_cls.h``
(``tc_u32_sel``, ``tc_gact``) and ``gen_stats.h``.
"""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass
from typing import Any

from geokv.errors import LabError
from geokv.lab.netem import RawQdiscMessage, attribute, attributes
from geokv.lab.netlink import CREATE, DUMP, EXCL, Netlink, NetlinkRefused

_NEWQDISC = 36
_NEWTFILTER, _DELTFILTER, _GETTFILTER = 44, 45, 46
_INGRESS_PARENT, _INGRESS_HANDLE = 0xFFFFFFF1, 0xFFFF0000
_ETH_P_ALL, _ETH_P_IP = 0x0003, 0x0800
_U32_SEL, _U32_ACT = 5, 7
_ACT_KIND, _ACT_OPTIONS, _ACT_STATS = 1, 2, 4
_GACT_PARMS = 2
_STATS_BASIC = 1
_SHOT = 2
_TERMINAL = 1
_SOURCE_OFFSET, _GOAL_OFFSET = 12, 16
_NESTED = 0x8000
_MOST_RULES = 0xFFFF


@dataclass(frozen=True, slots=True)
class Networks:
    """Packets from one IPv4 network to another, each ``(address, prefix length)``."""

    source: tuple[str, int]
    goal: tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in place: the interface, its number there, and what it drops (None is all)."""

    interface: str
    number: int
    networks: Networks | None


def add_rule(link: Netlink, interface: str, networks: Networks | None = None) -> Rule:
    """From now on drop what comes in at an interface, or what of it goes between two networks.

    Raises:
        LabError: the kernel refused.
    """
    _ensure_ingress(link, interface)
    used = {number for number, _ in _dump(link, interface)}
    number = next((n for n in range(1, _MOST_RULES) if n not in used), None)
    if number is None:
        raise LabError(f"{interface}: no room for another drop rule")
    rule = Rule(interface, number, networks)
    message = _message(link, rule)
    message["attrs"] = [("TCA_KIND", "u32"), ("TCA_OPTIONS", _encode(networks))]
    try:
        link.request(message, _NEWTFILTER, CREATE | EXCL, f"drop rule on {interface}")
    except NetlinkRefused as error:
        if error.code == errno.ENOENT:
            error.hint = (
                "no cls_u32 or act_gact in this kernel; --clock virtual boots one with both"
            )
        raise
    return rule


def remove_rule(link: Netlink, rule: Rule) -> None:
    """Let pass again what a rule dropped.

    Raises:
        LabError: the kernel refused, or there is no such rule.
    """
    link.request(_message(link, rule), _DELTFILTER, 0, f"drop rule on {rule.interface}")


def dropped(link: Netlink, rule: Rule) -> int:
    """Packets that a rule has dropped so far.

    Raises:
        LabError: there is no such rule.
    """
    for number, options in _dump(link, rule.interface):
        count = _count(options)
        if number == rule.number and count is not None:
            return count
    raise LabError(f"{rule.interface}: drop rule {rule.number} is not there")


def _ensure_ingress(link: Netlink, interface: str) -> None:
    message = RawQdiscMessage()
    message["index"] = link.index(interface)
    message["parent"], message["handle"] = _INGRESS_PARENT, _INGRESS_HANDLE
    message["attrs"] = [("TCA_KIND", "ingress")]
    try:
        link.request(message, _NEWQDISC, CREATE | EXCL, f"ingress of {interface}")
    except NetlinkRefused as error:
        if error.code != errno.EEXIST:
            raise


def _message(link: Netlink, rule: Rule) -> Any:
    message = RawQdiscMessage()
    message["index"] = link.index(rule.interface)
    message["parent"] = _INGRESS_HANDLE
    protocol = _ETH_P_ALL if rule.networks is None else _ETH_P_IP
    message["info"] = rule.number << 16 | socket.htons(protocol)
    return message


def _encode(networks: Networks | None) -> bytes:
    keys = [struct.pack("=IIii", 0, 0, 0, 0)]  # no bit is looked at: everything matches
    if networks is not None:
        keys = [_key(_SOURCE_OFFSET, *networks.source), _key(_GOAL_OFFSET, *networks.goal)]
    selector = struct.pack("=BBBxHHhhI", _TERMINAL, 0, len(keys), 0, 0, 0, 0, 0) + b"".join(keys)
    parameters = attribute(_GACT_PARMS, struct.pack("=IIiii", 0, 0, _SHOT, 0, 0))
    action = attribute(_ACT_KIND, b"gact\0") + attribute(_ACT_OPTIONS | _NESTED, parameters)
    return attribute(_U32_SEL, selector) + attribute(
        _U32_ACT | _NESTED, attribute(1 | _NESTED, action)
    )


def _key(offset: int, network: str, prefix: int) -> bytes:
    mask = (0xFFFFFFFF << (32 - prefix)) & 0xFFFFFFFF
    (value,) = struct.unpack("!I", socket.inet_aton(network))
    return struct.pack("!II", mask, value & mask) + struct.pack("=ii", offset, 0)


def _dump(link: Netlink, interface: str) -> list[tuple[int, bytes]]:
    """Number and options of each rule at an interface; the classifier's own tables too."""
    message = RawQdiscMessage()
    message["index"] = link.index(interface)
    message["parent"] = _INGRESS_HANDLE
    found = []
    for reply in link.request(message, _GETTFILTER, DUMP, f"drop rules of {interface}"):
        options = reply.get_attr("TCA_OPTIONS")
        found.append((reply["info"] >> 16, bytes(options) if options else b""))
    return found


def _count(options: bytes) -> int | None:
    """Packets counted by a rule's action; None in entries without one."""
    for kind, body in attributes(options):
        if kind != _U32_ACT:
            continue
        for _, action in attributes(body):
            for part, inside in attributes(action):
                if part != _ACT_STATS:
                    continue
                for stat, value in attributes(inside):
                    if stat == _STATS_BASIC:
                        return int(struct.unpack_from("=QI", value)[1])
    return None
