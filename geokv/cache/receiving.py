"""Where chunks go that another site pushes here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from geokv.cache.history import History
from geokv.cache.keys import ChunkRef, block_keys
from geokv.cache.layout import ChunkLayout
from geokv.cache.locality import TierStack
from geokv.cache.record import ChunkHeader, verify
from geokv.cache.substrate.transport import Landing
from geokv.errors import CacheError, FetchError


class TierSink:
    """Takes pushed chunks into a site's tiers.

    Args:
        exact: KV that lost something on its way is refused (``lossy``).
        on_kept: told every key that has become readable.
        knows: whether a tenant is a customer here, for whom chunks may be taken.
    """

    def __init__(
        self,
        tier: TierStack,
        layout: ChunkLayout,
        history: History,
        exact: bool,
        on_kept: Callable[[bytes], None],
        knows: Callable[[str], bool],
    ) -> None:
        self.landed: Counter[str] = Counter()
        self._tier = tier
        self._layout = layout
        self._history = history
        self._exact = exact
        self._on_kept = on_kept
        self._knows = knows

    def reserve(self, header: ChunkHeader, peer: str, incarnation: int) -> Landing | str:
        cause = self._refusal(header, incarnation)
        if cause:
            self._note(header.key, peer, cause)
            return cause
        try:
            slot = self._tier.reserve(header.key, header.tenant)
        except CacheError:
            self._note(header.key, peer, "full")
            return "full"

        def commit(final: ChunkHeader) -> None:
            try:
                self._tier.commit(slot, final)
            except FetchError as error:
                self._note(final.key, peer, error.cause)
                raise
            self._note(
                final.key,
                peer,
                "",
                tenant=final.tenant,
                place=slot.index,
                generation=final.generation,
                incarnation=final.incarnation,
                checksums=[digest.hex() for digest in final.checksums],
            )
            self._on_kept(final.key)

        def abort(cause: str) -> None:
            self._tier.abort(slot, cause)
            self._note(header.key, peer, cause)

        return Landing(slot.view, commit, abort)

    def _refusal(self, header: ChunkHeader, incarnation: int) -> str:
        if header.key in self._tier or self._tier.pending(header.key) is not None:
            return "present"
        if not self._knows(header.tenant):
            return "unauthorised"
        if refused := self._tier.refuses(header):
            return refused
        ref = ChunkRef(header.key, header.parent, header.tokens, header.tenant, header.epoch)
        cause = verify(header, ref, self._layout, incarnation, self._exact)
        if cause is not None:
            return cause
        # Nobody has asked for this key, so nothing but the chain says that it is true.
        if len(header.tokens) != self._layout.chunk_tokens:
            return "mismatch"
        chain = block_keys(header.parent, header.tokens, self._layout.key_tokens)
        return "" if chain[-1] == header.key else "mismatch"

    def _note(self, key: bytes, peer: str, cause: str, **more: Any) -> None:
        self.landed[cause or "ok"] += 1
        self._history.note("pushed", key, peer=peer, cause=cause, **more)
