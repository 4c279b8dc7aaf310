"""Which host a request may name for a server on the loopback address to answer it.

Binding to 127.0.0.1 keeps other machines out, and no more than that: a name whose owner points it
at 127.0.0.1 makes what is served here readable to that name's pages, in a browser of this machine
(DNS rebinding). Such a request carries the name in ``Host``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Container

NAMES = frozenset({"127.0.0.1", "localhost"})


def names_us(host: str, names: Container[str], port: int, any_address: bool = False) -> bool:
    """Whether a ``Host``, or an origin without its ``http://``, is this server.

    Args:
        names: that it answers to, as a browser writes them.
        any_address: any IP address will do, for a server on all interfaces. A name can be pointed
            anywhere, an address cannot.
    """
    name, colon, said = host.rpartition(":")
    if not colon:
        name, said = host, "80"
    if said != str(port):
        return False
    if name in names:
        return True
    if not any_address:
        return False
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
