"""Keys of pairs of sites: what an operator deals out, so that no site can be another.

The deployment's secret stays with the operator. Each pair of sites gets one key,
derived from the secret and both names, and each site is given the keys of its own
pairs only: b cannot make the key of a and c, so it cannot tell a that it is c.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from geokv.cache.substrate.tcp.certificates import TlsFiles, issue_tls
from geokv.errors import ConfigError

MIN_SECRET_BYTES = 16
KEY_BYTES = 32


@dataclass(frozen=True, repr=False)
class Keyring:
    """What one site holds.

    Args:
        site: whose it is.
        pairs: the 32-byte key shared with each other site.
        tls: certificate, private key and the other sites' aliases; ``None`` where
            the deployment does not use TLS.

    Raises:
        ConfigError: a key has another length.
    """

    site: str
    pairs: Mapping[str, bytes]
    tls: TlsFiles | None = None
    _decoy: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        for peer, key in self.pairs.items():
            if len(key) != KEY_BYTES:
                raise ConfigError(f"key of {self.site!r} and {peer!r}: {len(key)} bytes, not 32")
        # Strangers' names get a key too: the work for them must not differ.
        every = b"".join(self.pairs[peer] for peer in sorted(self.pairs))
        decoy = hashlib.blake2b(every, digest_size=KEY_BYTES, person=b"geokv-decoy").digest()
        object.__setattr__(self, "_decoy", decoy)

    def knows(self, peer: str) -> bool:
        """Is there a key for this name?"""
        return peer in self.pairs

    def key(self, peer: str) -> bytes:
        """The key of this site and ``peer``; for unknown names one that nobody has."""
        return self.pairs.get(peer, self._decoy)

    def __repr__(self) -> str:
        return f"Keyring(site={self.site!r}, peers={sorted(self.pairs)})"


class SecretRing(Keyring):
    """Every key of a deployment: for whoever may be any of its sites.

    A site that is given this can call itself by another's name. It is for deployments
    of one hand and for tests; others ``deal``.
    """

    def __init__(self, site: str, secret: bytes) -> None:
        super().__init__(site, {})
        object.__setattr__(self, "_master", _master(secret))

    def knows(self, peer: str) -> bool:
        return peer != self.site

    def key(self, peer: str) -> bytes:
        master: bytes = self._master  # type: ignore[attr-defined]
        return _pair_key(master, self.site, peer)


def deal(secret: bytes, sites: Iterable[str], *, tls: bool = False) -> dict[str, Keyring]:
    """The operator's step: one ring per site. A pure function of its arguments.

    Args:
        secret: the deployment's, at least 16 bytes; no site may have it.
        tls: also make certificates (see ``certificates``).

    Raises:
        ConfigError: the secret is too short.
    """
    master = _master(secret)
    names = sorted(set(sites))
    files = issue_tls(master, names) if tls else {}
    return {
        site: Keyring(
            site,
            {peer: _pair_key(master, site, peer) for peer in names if peer != site},
            files.get(site),
        )
        for site in names
    }


def _master(secret: bytes) -> bytes:
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigError(f"secret: must have at least {MIN_SECRET_BYTES} bytes, got {len(secret)}")
    return hashlib.blake2b(secret, digest_size=KEY_BYTES, person=b"geokv-secret").digest()


def _pair_key(master: bytes, one: str, other: str) -> bytes:
    text = b"".join(
        len(name).to_bytes(2, "big") + name for name in sorted((one.encode(), other.encode()))
    )
    return hmac.new(master, b"geokv pair" + text, hashlib.sha256).digest()
