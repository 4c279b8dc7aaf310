"""What a heartbeat looks like: one datagram, authenticated by the key of its two sites.

::

    length of the sender's name u8 | name | msgpack of ``Beat`` | BLAKE2b-128 MAC

The MAC covers both names, so that a datagram is worth nothing in the other direction.
One that is recorded and sent again is older than what its receiver has heard already.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from geokv.errors import RecordError

MAC_BYTES = 16
MOST_BYTES = 1200


class Beat(msgspec.Struct, frozen=True, array_like=True):
    """I am here, and this I have heard of you.

    Args:
        answer: this answers a beat and wants no answer.
        incarnation: of the sender's process.
        seq: of the sender's beats to this receiver, from 1; of an answer, that of the
            beat it answers.
        to: incarnation that an answer is for; 0 in a beat.
        epoch: how often the sender's view of its peers has changed.
        said: what other rooms want to be told with it.
    """

    answer: bool
    incarnation: int
    seq: int
    to: int
    epoch: int
    said: bytes = b""


def beat_key(pair_key: bytes) -> bytes:
    """32 bytes for heartbeats alone, of the key of a pair of sites."""
    return hashlib.blake2b(pair_key, digest_size=32, person=b"geokv-beat").digest()


def pack(beat: Beat, key: bytes, site: str, peer: str) -> bytes:
    """The datagram from ``site`` to ``peer``.

    Raises:
        RecordError: it would not fit into one.
    """
    name = site.encode()
    front = bytes((len(name),)) + name + msgspec.msgpack.encode(beat)
    data = front + _mac(front, key, peer)
    if len(data) > MOST_BYTES:
        raise RecordError(f"a heartbeat of {len(data)} bytes, {MOST_BYTES} fit")
    return data


def sender(data: bytes) -> str:
    """The name a datagram gives itself; not proved by anything yet.

    Raises:
        RecordError: it is no heartbeat.
    """
    try:
        end = 1 + data[0]
        if len(data) <= end + MAC_BYTES:
            raise IndexError
        return data[1:end].decode()
    except (IndexError, UnicodeDecodeError):
        raise RecordError("not a heartbeat") from None


def unpack(data: bytes, key: bytes, peer: str) -> Beat:
    """The beat in a datagram that ``peer`` (this site) has received.

    Raises:
        RecordError: it is none, or the key is another.
    """
    front, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(front, key, peer)):
        raise RecordError("a heartbeat that its sender cannot have made")
    try:
        return msgspec.msgpack.decode(front[1 + front[0] :], type=Beat)
    except msgspec.DecodeError as error:
        raise RecordError(f"not a heartbeat ({error})") from None


def _mac(front: bytes, key: bytes, peer: str) -> bytes:
    digest = hashlib.blake2b(front, key=key, digest_size=MAC_BYTES)
    digest.update(peer.encode())
    return digest.digest()
