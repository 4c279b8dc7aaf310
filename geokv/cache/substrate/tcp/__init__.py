"""Our transport: striped, pooled, mutually authenticated TCP."""

from geokv.cache.substrate.tcp.keyring import Keyring, deal
from geokv.cache.substrate.tcp.sockets import SocketOptions
from geokv.cache.substrate.tcp.tcp import TcpTransport

__all__ = ["Keyring", "SocketOptions", "TcpTransport", "deal"]
