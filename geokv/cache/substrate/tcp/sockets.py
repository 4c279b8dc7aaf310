"""Socket options of the data path: set, read back, reported."""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass
from typing import Any

from geokv.errors import CacheError

_KEEPALIVE_IDLE_S = 60
_KEEPALIVE_INTERVAL_S = 20
# struct tcp_info (linux/tcp.h): byte offset of each u32 that a report shows.
_TCP_INFO = {
    "snd_mss_bytes": 16,
    "unacked_packets": 24,
    "lost_packets": 32,
    "pmtu_bytes": 60,
    "rtt_us": 68,
    "snd_ssthresh_packets": 76,
    "snd_cwnd_packets": 80,
    "total_retrans_packets": 100,
}


@dataclass(frozen=True)
class SocketOptions:
    """Per-connection TCP settings; ``None`` leaves the namespace's default.

    Args:
        congestion_control: as ``TCP_CONGESTION`` names it (``cubic``, ``bbr``).
        send_buffer_bytes, receive_buffer_bytes: fixed sizes; turn off autotuning.
        user_timeout_s: how long sent data may stay unacknowledged before the
            connection counts as dead (a cut link sends no reset).
    """

    congestion_control: str | None = None
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    user_timeout_s: float = 10.0

    def apply(self, sock: socket.socket) -> None:
        """Set everything on ``sock``.

        Raises:
            CacheError: the kernel refuses a value, named in the message.
        """
        tcp = socket.IPPROTO_TCP
        sock.setsockopt(tcp, socket.TCP_NODELAY, 1)
        sock.setsockopt(tcp, socket.TCP_USER_TIMEOUT, round(self.user_timeout_s * 1000))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(tcp, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
        sock.setsockopt(tcp, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
        if self.congestion_control is not None:
            try:
                name = self.congestion_control.encode()
                sock.setsockopt(tcp, socket.TCP_CONGESTION, name)
            except OSError as error:
                raise CacheError(
                    f"congestion control {self.congestion_control!r} refused ({error.strerror})",
                    "see net.ipv4.tcp_available_congestion_control",
                ) from None
        for option, size in (
            (socket.SO_SNDBUF, self.send_buffer_bytes),
            (socket.SO_RCVBUF, self.receive_buffer_bytes),
        ):
            if size is not None:
                # The kernel doubles what is asked, to pay for its own bookkeeping.
                sock.setsockopt(socket.SOL_SOCKET, option, size // 2)


def tcp_info(sock: socket.socket) -> dict[str, Any]:
    """What the kernel really uses on ``sock``; empty once it is closed."""
    tcp = socket.IPPROTO_TCP
    try:
        raw = sock.getsockopt(tcp, socket.TCP_INFO, 256)
        name = sock.getsockopt(tcp, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        send = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        receive = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    except OSError as error:
        if error.errno in {errno.EBADF, errno.ENOTCONN, errno.EINVAL}:
            return {}
        raise
    info: dict[str, Any] = {
        "congestion_control": name,
        "send_buffer_bytes": send,
        "receive_buffer_bytes": receive,
    }
    for field, offset in _TCP_INFO.items():
        if offset + 4 <= len(raw):
            info[field] = struct.unpack_from("=I", raw, offset)[0]
    return info


def listen(host: str, port: int, options: SocketOptions, backlog: int) -> socket.socket:
    """A listening, non-blocking socket.

    Raises:
        CacheError: the address is taken or not this host's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        options.apply(sock)
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise CacheError(
                f"the KV server cannot listen on {host}:{port}: the port is already bound",
                f"end the program that holds it (`ss -ltnp sport = :{port}`) or choose another",
            ) from None
        raise CacheError(
            f"the KV server cannot listen on {host}:{port} ({error.strerror})",
            "the address must belong to this site's namespace",
        ) from None
    except CacheError:
        sock.close()
        raise
    return sock
