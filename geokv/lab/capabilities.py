"""What the running kernel can do, found out by trying it in a scratch namespace."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from pyroute2.netlink.rtnl import TC_H_ROOT

from geokv.errors import LabError
from geokv.lab.enter import in_netns, new_netns
from geokv.lab.netem import RawQdiscMessage
from geokv.lab.netlink import CREATE, REPLACE, Netlink, NetlinkRefused

QDISCS = ("netem", "tbf", "htb", "fq", "fq_codel")
CONGESTION = ("cubic", "bbr", "dctcp")
NEEDED = ("namespaces", "veth", "bridge", "netem", "cubic")
"""Without these no lab can be built."""

_NEWQDISC = 36
_TCP_CONGESTION = 13


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing the lab uses: whether it is there, and why not."""

    ok: bool
    reason: str = ""


def probe_capabilities() -> dict[str, Capability]:
    """Try everything the lab uses; leaves nothing behind.

    Returns:
        By name: ``namespaces``, ``veth``, ``bridge``, each of QDISCS and CONGESTION.
    """
    try:
        first, second = new_netns(), new_netns()
    except LabError as error:
        missing = Capability(False, error.message)
        names = ("namespaces", "veth", "bridge", *QDISCS)
        return {**dict.fromkeys(names, missing), **_congestion(None)}
    try:
        path = f"/proc/self/fd/{first}"
        found = {"namespaces": Capability(True)}
        with Netlink(path) as link:
            found["veth"] = _veth(link, second)
            found["bridge"] = _bridge(link)
            for kind in QDISCS:
                found[kind] = _qdisc(link, kind) if found["veth"].ok else found["veth"]
        return found | _congestion(path)
    finally:
        os.close(first)
        os.close(second)


def require(*names: str) -> None:
    """Refuse to go on without these.

    Raises:
        LabError: names what is missing and why.
    """
    found = probe_capabilities()
    missing = [f"{name} ({found[name].reason})" for name in names if not found[name].ok]
    if missing:
        raise LabError(
            f"this kernel lacks {', '.join(missing)}",
            "--clock virtual boots a kernel that has it",
        )


def _veth(link: Netlink, peer_netns: int) -> Capability:
    macs = ("02:00:00:00:00:01", "02:00:00:00:00:02")
    try:
        link.add_veth("probe", "peer", peer_netns, 1500, macs)
    except NetlinkRefused as error:
        return Capability(False, error.message)
    return Capability(True)


def _bridge(link: Netlink) -> Capability:
    try:
        link.add_bridge("bridge")
    except NetlinkRefused as error:
        return Capability(False, error.message)
    return Capability(True)


def _qdisc(link: Netlink, kind: str) -> Capability:
    """A kernel that has the qdisc complains of missing options at worst, never ENOENT."""
    message = RawQdiscMessage()
    message["index"] = link.index("probe")
    message["handle"] = 0x10000
    message["parent"] = TC_H_ROOT
    message["attrs"] = [("TCA_KIND", kind)]
    try:
        link.request(message, _NEWQDISC, CREATE | REPLACE, f"qdisc {kind}")
    except NetlinkRefused as error:
        if error.code == errno.ENOENT:
            return Capability(False, f"no sch_{kind} in this kernel")
        if error.code not in (errno.EINVAL, errno.ENOMEM):
            return Capability(False, error.message)
    return Capability(True)


def _congestion(path: str | None) -> dict[str, Capability]:
    found = {}
    for name in CONGESTION:
        try:
            if path is None:
                available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
                if name not in available.read_text().split():
                    raise FileNotFoundError(errno.ENOENT, "not available")
            else:
                with in_netns(path), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp:
                    tcp.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, name.encode())
            found[name] = Capability(True)
        except OSError as error:
            found[name] = Capability(False, f"TCP {name}: {error.strerror}")
    return found
