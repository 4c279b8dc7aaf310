"""Our transport: striped, pooled, mutually authenticated TCP."""

from geokv.cache.substrate.tcp.sockets import SocketOptions
from geokv.cache.substrate.tcp.tcp import TcpTransport

__all__ = ["SocketOptions", "TcpTransport"]
