"""Segmentation offloads of an interface, through the ethtool ioctl.

With them on, TCP hands the network up to 64 KiB at once and netem loses, delays or changes all of
it together. They stay on for pure delay (fast, and exact to the byte) and go off where single
packets matter.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

from geokv.errors import LabError
from geokv.lab.enter import in_netns

_SIOCETHTOOL = 0x8946
_COMMANDS = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}
"""ETHTOOL_G* and ETHTOOL_S* of include/uapi/linux/ethtool.h."""


def set_offloads(netns: str, interface: str, on: bool) -> None:
    """Switch TSO, GSO and GRO of one interface and read them back.

    Raises:
        LabError: the interface refuses, or reads back differently.
    """
    with in_netns(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for name, (get, change) in _COMMANDS.items():
            _ioctl(handle, interface, change, int(on))
            found = _ioctl(handle, interface, get, 0)
            if bool(found) != on:
                raise LabError(f"{name} of {interface} asked {int(on)}, found {found}")


def _ioctl(handle: socket.socket, interface: str, command: int, value: int) -> int:
    request = ctypes.create_string_buffer(struct.pack("=II", command, value), 8)
    packed = struct.pack("16sQ16x", interface.encode(), ctypes.addressof(request))
    try:
        fcntl.ioctl(handle, _SIOCETHTOOL, packed)
    except OSError as error:
        raise LabError(f"offloads of {interface} cannot be set ({error.strerror})") from None
    return int(struct.unpack("=II", request.raw)[1])
