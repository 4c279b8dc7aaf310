"""One route netlink socket in one namespace, synchronous.

pyroute2's message classes encode and decode; its ``IPRoute`` runs an event loop per socket and
so cannot be called from inside one, which is where live changes come from.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from geokv.errors import LabError
from geokv.lab.enter import in_netns

NEWLINK, DELLINK, GETLINK = 16, 17, 18
NEWADDR = 20
NEWROUTE, GETROUTE = 24, 26
NEWNEIGH = 28
REQUEST, ACK, ROOT, MATCH, REPLACE, EXCL, CREATE = 1, 4, 0x100, 0x200, 0x100, 0x200, 0x400
DUMP = ROOT | MATCH

_HEADER = struct.Struct("=IHHII")
_ERROR, _DONE = 2, 3
_PERMANENT = 0x80
_UP = 1
_ONLINK = 4
_REPLY_DEADLINE_S = 10.0


class NetlinkRefused(LabError):
    """The kernel answered with an error; ``code`` is its errno."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {os.strerror(code)}")
        self.code = code


class Netlink:
    """A socket that stays in the namespace at ``path``; close it when done.

    Raises:
        LabError: the namespace cannot be entered.
    """

    def __init__(self, path: str = "/proc/thread-self/ns/net") -> None:
        with in_netns(path):
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
            )
        self._socket.settimeout(_REPLY_DEADLINE_S)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        self._socket.bind((0, 0))
        self._sequence = 1
        self._indices: dict[str, int] = {}

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; harmless when repeated."""
        self._socket.close()

    def request(self, message: Any, kind: int, flags: int, what: str) -> list[Any]:
        """Send one message and gather what comes back until its acknowledgement.

        Args:
            what: put before the kernel's reason when it refuses.

        Raises:
            NetlinkRefused: the kernel said no.
            LabError: no answer in time.
        """
        self._sequence += 1
        flags |= REQUEST | (ACK if flags & DUMP != DUMP or flags & CREATE else 0)
        message["header"] = {
            "type": kind,
            "flags": flags,
            "sequence_number": self._sequence,
            "pid": 0,
        }
        message.reset()
        message.encode()
        self._socket.send(message.data)
        replies: list[Any] = []
        while True:
            try:
                data = self._socket.recv(1 << 20)
            except TimeoutError:
                raise LabError(f"{what}: no netlink answer in {_REPLY_DEADLINE_S:g} s") from None
            offset = 0
            while offset < len(data):
                length, reply, _, sequence, _ = _HEADER.unpack_from(data, offset)
                if sequence == self._sequence:
                    if reply == _ERROR:
                        (code,) = struct.unpack_from("=i", data, offset + _HEADER.size)
                        if code:
                            raise NetlinkRefused(what, -code)
                        return replies
                    if reply == _DONE:
                        return replies
                    parsed = type(message)(data[offset : offset + length])
                    parsed.decode()
                    replies.append(parsed)
                offset += (length + 3) & ~3

    def index(self, name: str) -> int:
        """Index of an interface of this namespace.

        Raises:
            NetlinkRefused: there is none of that name.
        """
        if name not in self._indices:
            message = ifinfmsg()
            message["attrs"] = [("IFLA_IFNAME", name)]
            reply = self.request(message, GETLINK, 0, f"interface {name}")
            self._indices[name] = reply[0]["index"]
        return self._indices[name]

    def add_veth(
        self,
        name: str,
        peer: str,
        peer_netns: int,
        mtu: int,
        macs: Sequence[str],
        indices: tuple[int, int] = (0, 0),
    ) -> None:
        """A cable from here to an interface in the namespace with descriptor ``peer_netns``.

        Neither end ever shows in another namespace. ``macs`` are of this end and of the peer,
        as are ``indices``: interface numbers, which the kernel chooses where they are 0.
        """
        far = {
            "index": indices[1],
            "attrs": [
                ("IFLA_IFNAME", peer),
                ("IFLA_MTU", mtu),
                ("IFLA_ADDRESS", macs[1]),
                ("IFLA_NET_NS_FD", peer_netns),
            ],
        }
        message = ifinfmsg()
        message["index"] = indices[0]
        message["attrs"] = [
            ("IFLA_IFNAME", name),
            ("IFLA_MTU", mtu),
            ("IFLA_ADDRESS", macs[0]),
            _link_info("veth", [("VETH_INFO_PEER", far)]),
        ]
        self.request(message, NEWLINK, CREATE | EXCL, f"veth {name}")

    def add_bridge(self, name: str) -> None:
        """An Ethernet bridge."""
        message = ifinfmsg()
        message["attrs"] = [("IFLA_IFNAME", name), _link_info("bridge", [])]
        self.request(message, NEWLINK, CREATE | EXCL, f"bridge {name}")

    def set_link(
        self,
        name: str,
        *,
        up: bool | None = None,
        master: str | None = None,
        mtu: int | None = None,
    ) -> None:
        """Change an interface."""
        message = ifinfmsg()
        message["index"] = self.index(name)
        attrs: list[Any] = []
        if master is not None:
            attrs.append(("IFLA_MASTER", self.index(master)))
        if mtu is not None:
            attrs.append(("IFLA_MTU", mtu))
        if up is not None:
            message["flags"], message["change"] = (_UP if up else 0), _UP
        message["attrs"] = attrs
        self.request(message, NEWLINK, 0, f"interface {name}")

    def wait_up(self, *names: str, deadline_s: float = 10.0) -> None:
        """Return once the interfaces carry packets, which the kernel arranges a little later.

        Raises:
            LabError: one is still down at the deadline.
        """
        until = time.monotonic() + deadline_s
        for name in names:
            message = ifinfmsg()
            message["index"] = self.index(name)
            while True:
                reply = self.request(message, GETLINK, 0, f"interface {name}")[0]
                if reply.get_attr("IFLA_OPERSTATE") in ("UP", "UNKNOWN"):
                    break
                if time.monotonic() > until:
                    raise LabError(f"interface {name} is still down after {deadline_s:g} s")
                time.sleep(0.001)

    def carrier(self, name: str) -> bool:
        """Whether an interface that is up sees the other end of its cable."""
        message = ifinfmsg()
        message["index"] = self.index(name)
        reply = self.request(message, GETLINK, 0, f"interface {name}")[0]
        return bool(reply["flags"] & _UP) and bool(reply.get_attr("IFLA_CARRIER"))

    def delete_link(self, name: str) -> None:
        """Remove an interface (and its peer)."""
        message = ifinfmsg()
        message["index"] = self.index(name)
        self.request(message, DELLINK, 0, f"interface {name}")
        del self._indices[name]

    def add_address(self, name: str, address: str, prefix: int) -> None:
        """Give an interface an IPv4 address."""
        message = ifaddrmsg()
        message["family"] = socket.AF_INET
        message["prefixlen"] = prefix
        message["index"] = self.index(name)
        message["attrs"] = [("IFA_ADDRESS", address), ("IFA_LOCAL", address)]
        self.request(message, NEWADDR, CREATE | EXCL, f"address {address} on {name}")

    def add_neighbour(self, name: str, address: str, mac: str) -> None:
        """A permanent neighbour, so that nothing ever waits for ARP."""
        message = ndmsg()
        message["family"] = socket.AF_INET
        message["ifindex"] = self.index(name)
        message["state"] = _PERMANENT
        message["attrs"] = [("NDA_DST", address), ("NDA_LLADDR", mac)]
        self.request(message, NEWNEIGH, CREATE | REPLACE, f"neighbour {address} on {name}")

    def set_route(
        self,
        network: str,
        prefix: int,
        gateway: str,
        *,
        source: str | None = None,
        mtu: int | None = None,
        congestion: str | None = None,
        direct: str | None = None,
    ) -> None:
        """Make or replace a route; connections over it use ``congestion`` and fit ``mtu``.

        Args:
            direct: the gateway is on this interface although no network says so.
        """
        metrics: list[Any] = []
        if mtu is not None:
            metrics.append(("RTAX_MTU", mtu))
        if congestion is not None:
            metrics.append(("RTAX_CC_ALGO", congestion))
        message = rtmsg()
        message["family"] = socket.AF_INET
        message["dst_len"] = prefix
        message["table"], message["proto"], message["scope"], message["type"] = 254, 4, 0, 1
        attrs: list[Any] = [("RTA_GATEWAY", gateway)]
        if prefix:
            attrs.append(("RTA_DST", network))
        if direct is not None:
            message["flags"] = _ONLINK
            attrs.append(("RTA_OIF", self.index(direct)))
        if source is not None:
            attrs.append(("RTA_PREFSRC", source))
        if metrics:
            attrs.append(("RTA_METRICS", {"attrs": metrics}))
        message["attrs"] = attrs
        try:
            self.request(
                message, NEWROUTE, CREATE | REPLACE, f"route to {network}/{prefix} via {gateway}"
            )
        except NetlinkRefused as error:
            if congestion and error.code in (errno.EINVAL, errno.ENOENT):
                error.hint = f"does this kernel have TCP congestion control {congestion}?"
            raise

    def routes(self) -> list[Any]:
        """Every IPv4 route of the main table."""
        message = rtmsg()
        message["family"] = socket.AF_INET
        found = self.request(message, GETROUTE, DUMP, "routes")
        return [route for route in found if route["table"] == 254]


def _link_info(kind: str, data: list[Any]) -> tuple[str, Any]:
    attrs: list[Any] = [("IFLA_INFO_KIND", kind)]
    if data:
        attrs.append(("IFLA_INFO_DATA", {"attrs": data}))
    return ("IFLA_LINKINFO", {"attrs": attrs})
