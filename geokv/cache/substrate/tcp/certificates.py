"""Certificates of a deployment's sites, made by the operator and by nobody else.

One authority per deployment, whose private key no site has, signs one certificate
per site. Everything is derived: the same secret and names give the same bytes, on
any machine and in any virtual run (Ed25519 signs without randomness, and all its
certificates of one shape have one length). A certificate names its site by an alias,
a keyed hash, because a TLS server shows it to whoever connects.

``cryptography`` makes them; ``ssl`` (OpenSSL) uses them, see ``tls``.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.x509 import Certificate

# A fixed span, because a virtual guest's calendar is its own; a deployment's
# certificates end when its secret is replaced.
_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_UNTIL = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)
_AUTHORITY = "geokv deployment"


@dataclass(frozen=True, repr=False)
class TlsFiles:
    """What one site needs for TLS.

    Args:
        chain: its private key and certificate, PEM.
        authority: the deployment's certificate, PEM; nothing else is trusted.
        aliases: alias in a certificate -> site, for every site of the deployment.
    """

    chain: bytes
    authority: bytes
    aliases: Mapping[str, str]


def issue_tls(master: bytes, sites: Sequence[str]) -> dict[str, TlsFiles]:
    """Certificates for ``sites``.

    Args:
        master: 32 secret bytes of the deployment.
    """
    # Takes 0.1 s to import and only an operator's process needs it.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    def private_key(name: str) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(_derive(master, b"geokv-tls-key", name, 32))

    def pem(certificate: Certificate) -> bytes:
        return certificate.public_bytes(serialization.Encoding.PEM)

    aliases = {site: _derive(master, b"geokv-alias", site, 16).hex() for site in sites}
    signer = private_key("")
    authority = _certificate(signer.public_key(), signer, _serial(master, ""), None)
    files = {}
    for site in sites:
        key = private_key(f"site {site}")
        own = _certificate(key.public_key(), signer, _serial(master, site), aliases[site])
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        files[site] = TlsFiles(
            secret + pem(own), pem(authority), {alias: name for name, alias in aliases.items()}
        )
    return files


def _certificate(
    public: Ed25519PublicKey, signer: Ed25519PrivateKey, serial: int, alias: str | None
) -> Certificate:
    """The authority's own certificate, or that of the site with this alias."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    builder = (
        x509.CertificateBuilder(
            issuer_name=name(_AUTHORITY),
            subject_name=name(alias or _AUTHORITY),
            public_key=public,
            serial_number=serial,
            not_valid_before=_FROM,
            not_valid_after=_UNTIL,
        )
        .add_extension(x509.BasicConstraints(ca=alias is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if alias is not None:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(alias)]), critical=False
        )
    else:
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    return builder.sign(signer, algorithm=None)


def _serial(master: bytes, site: str) -> int:
    # The top bit clear and the next one set: a positive number of one length for all.
    raw = int.from_bytes(_derive(master, b"geokv-serial", site, 16), "big")
    return (raw >> 2) | (1 << 126)


def _derive(master: bytes, purpose: bytes, name: str, length: int) -> bytes:
    return hashlib.blake2b(name.encode(), key=master, digest_size=length, person=purpose).digest()
