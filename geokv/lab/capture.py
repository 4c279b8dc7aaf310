"""Packets of a link, written down while it is used.

The eye is the fibre's port on one site's side: what that site sends is seen as it
leaves, what it receives as it arrives, with the kernel's own stamps. Capturing costs
no virtual time: in the VM the writer runs while the clock stands still.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
import threading
from pathlib import Path
from typing import Any

from geokv.errors import ConfigError, LabError
from geokv.lab import wiring
from geokv.lab.build import Lab
from geokv.lab.enter import in_netns
from geokv.units import show_size

_ETH_P_ALL = 3
_SO_ATTACH_FILTER = 26
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_BUFFER_BYTES = 64 * 2**20
_MOST_FRAME_BYTES = 65536 + 64
# Operations of classic BPF (linux/bpf_common.h).
_LOAD_HALF, _LOAD_BYTE, _LOAD_HALF_AFTER, _LOAD_IP_LENGTH = 0x28, 0x30, 0x48, 0xB1
_IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x15, 0x45, 0x06


class LinkCapture:
    """Writes a pcap file of one link while it is entered; use as a context manager.

    Args:
        site: on whose side of the fibre to look; side a of the link by default.
        port: only TCP to or from this port; ``None`` is every packet.
        most_bytes: after so many the file is closed and the rest only counted.

    Attributes:
        packets, kept_bytes: written. ``beyond``: packets after ``most_bytes``.
        dropped: packets that the kernel had no room to hand over (wall clock only).

    Raises:
        ConfigError: no such link or site, or the file cannot be written.
        LabError: packet sockets are not allowed.
    """

    def __init__(
        self,
        lab: Lab,
        link: str,
        path: Path,
        *,
        site: str | None = None,
        port: int | None = None,
        most_bytes: int = 2**30,
    ) -> None:
        plan = lab.link_plan(link)
        if site is not None and site not in (plan.a, plan.b):
            raise ConfigError(f"links.{link}: has no end {site!r} (ends: {plan.a}, {plan.b})")
        self.packets = self.kept_bytes = self.beyond = self.dropped = 0
        self._most_bytes = most_bytes
        self._path = path
        self._writer = _open_writer(path)
        self._socket = _packet_socket(
            lab.fibre_netns(link), wiring.port(site or plan.a), _filter(port)
        )
        self._woken, self._wake = os.pipe()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=f"capture {link}", daemon=True)

    def __enter__(self) -> LinkCapture:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._wake, b"x")
        self._thread.join()
        counts = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        self.dropped = struct.unpack("@II", counts)[1]
        self._socket.close()
        os.close(self._woken)
        os.close(self._wake)
        self._writer.close()
        if self._error is not None:
            raise LabError(
                f"{self._path}: the capture is not whole ({self._error.strerror})",
                "is the disk full?",
            )

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while True:
                ready = {descriptor for descriptor, _ in poll.poll()}
                self._take_all()
                if self._woken in ready:
                    return
        except OSError as error:
            self._error = error

    def _take_all(self) -> None:
        while True:
            try:
                data, extras, _, _ = self._socket.recvmsg(_MOST_FRAME_BYTES, 64)
            except BlockingIOError:
                return
            except OSError as error:
                # Said once when the fibre goes dark; what comes when it is lit again is kept.
                if error.errno != errno.ENETDOWN:
                    raise
                continue
            if self.kept_bytes + len(data) > self._most_bytes:
                self.beyond += 1
                continue
            seconds, nanoseconds = struct.unpack("@ll", extras[0][2])
            self._writer.write_packet(data, sec=seconds, usec=nanoseconds)
            self.packets += 1
            self.kept_bytes += len(data)

    def __str__(self) -> str:
        text = f"{self.packets} packets, {show_size(self.kept_bytes)}"
        if self.beyond:
            text += f", {self.beyond} more beyond {show_size(self._most_bytes)} left out"
        return text + (f", {self.dropped} lost by the kernel" if self.dropped else "")


def _open_writer(path: Path) -> Any:
    from scapy.utils import RawPcapWriter

    try:
        writer = RawPcapWriter(str(path), linktype=1, nano=True, sync=False)
        writer.write_header(None)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
    return writer


def _packet_socket(netns: str, interface: str, program: bytes) -> socket.socket:
    with in_netns(netns):
        try:
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        except PermissionError:
            raise LabError(
                "packet sockets need root", "use --clock virtual, or run as root"
            ) from None
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            if program:
                _attach(sock, program)
            sock.bind((interface, _ETH_P_ALL))
        except OSError as error:
            sock.close()
            raise LabError(f"{interface} cannot be captured ({error.strerror})") from None
    return sock


def _attach(sock: socket.socket, program: bytes) -> None:
    held = ctypes.create_string_buffer(program, len(program))
    sock.setsockopt(
        socket.SOL_SOCKET,
        _SO_ATTACH_FILTER,
        struct.pack("@HP", len(program) // 8, ctypes.addressof(held)),
    )


def _filter(port: int | None) -> bytes:
    """Classic BPF: Ethernet, IPv4, TCP, first fragment, ``port`` at either end."""
    if port is None:
        return b""
    accept, reject = 11, 12
    steps = [
        (_LOAD_HALF, 0, 0, 12),  # EtherType
        (_IF_EQUAL, 0, reject - 2, 0x0800),
        (_LOAD_BYTE, 0, 0, 23),  # protocol
        (_IF_EQUAL, 0, reject - 4, 6),
        (_LOAD_HALF, 0, 0, 20),  # fragment offset
        (_IF_ANY_BIT, reject - 6, 0, 0x1FFF),
        (_LOAD_IP_LENGTH, 0, 0, 14),
        (_LOAD_HALF_AFTER, 0, 0, 14),  # source port
        (_IF_EQUAL, accept - 9, 0, port),
        (_LOAD_HALF_AFTER, 0, 0, 16),  # destination port
        (_IF_EQUAL, accept - 11, reject - 11, port),
        (_RETURN, 0, 0, 2**18),
        (_RETURN, 0, 0, 0),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
