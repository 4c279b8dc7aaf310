"""What a site says to a directory that is elsewhere, and hears: calls and bytes."""

from __future__ import annotations

from geokv.cache.substrate import Transport


class Traffic:
    """Counts the messages of one site's directory that cross a link.

    Bytes are those of message bodies; each way a frame of 36 bytes (``substrate.tcp.wire``)
    comes on top, and TCP.
    """

    def __init__(self) -> None:
        self._calls: dict[str, list[int]] = {}

    async def call(
        self,
        transport: Transport,
        site: str,
        method: str,
        body: bytes,
        deadline_ns: int,
        op: str,
    ) -> bytes:
        """``transport.call``, counted as ``op``; what is sent counts even if no answer comes.

        Raises:
            FetchError: as ``Transport.call``.
        """
        counted = self._calls.setdefault(op, [0, 0, 0])
        counted[0] += 1
        counted[1] += len(body)
        answer = await transport.call(site, method, body, deadline_ns)
        counted[2] += len(answer)
        return answer

    def stats(self) -> dict[str, dict[str, int]]:
        """Operation → ``calls``, ``sent_bytes``, ``received_bytes``."""
        names = ("calls", "sent_bytes", "received_bytes")
        return {op: dict(zip(names, n, strict=True)) for op, n in self._calls.items()}
