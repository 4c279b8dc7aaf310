"""The object model of NIXL, with its names: what every transfer engine is behind here.

An *agent* stands for one process. It *registers* stretches of memory as *segments*,
tells others about some of them in a *metadata* blob, and knows of others what it was
told (``load_remote``). A transfer is *prepared* from two *descriptor lists* of one
kind and equal lengths, *posted*, and is then ``PROC`` until it is ``DONE`` or ``ERR``;
it can be posted again, but not while it is active. The other side can be told of its
end by a *notification*. ``invalidate`` forgets an agent and ends what is under way.
Source: docs/nixl.md of github.com/ai-dynamo/nixl, as of August 2026.

The rules are here, once, for all engines; a ``Backend`` moves the bytes. Blobs are
msgpack with a version, never pickles: reading one runs nothing.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Collection

import msgspec

from geokv.cache.substrate.handle import Backend, Handle, Op
from geokv.cache.substrate.segments import (
    BLOB_VERSION,
    Blob,
    DescriptorList,
    MemoryKind,
    Pair,
    Remote,
    RemoteSegment,
    Segment,
    address_of,
    check_range,
)
from geokv.clock import now_ns
from geokv.errors import CacheError, FetchError, RecordError

KEY_BYTES = 16
# After these, what is known of the other agent is not believed any longer.
_GONE = frozenset({"unreachable", "timeout", "stale", "unauthorised"})


class Agent:
    """One process's end of all its transfers.

    Args:
        name: unique among all agents.
        incarnation: greater than in any earlier life of this name.
        nonce: source of unpredictable bytes for segment keys.

    Attributes:
        on_notice: called with (agent, notice) instead of keeping it for
            ``notifications``.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        *,
        incarnation: int | None = None,
        nonce: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.name = name
        self.incarnation = now_ns() if incarnation is None else incarnation
        self.on_notice: Callable[[str, bytes], None] | None = None
        self._backend = backend
        self._nonce = nonce
        self._segments: dict[int, Segment] = {}
        self._remotes: dict[str, Remote] = {}
        self._active: dict[Handle, None] = {}
        self._notices: deque[tuple[str, bytes]] = deque()
        self._next_id = 1

    @property
    def stops(self) -> bool:
        """Does a released transfer let go of its memory at once?"""
        return self._backend.stops

    # -- memory ----------------------------------------------------------------

    def register(self, memory: memoryview, kind: MemoryKind = "DRAM", tenant: str = "") -> Segment:
        """Make ``memory`` usable in transfers; it must not move or go away before
        ``deregister``.

        Raises:
            CacheError: it is empty, or the engine cannot have this kind.
        """
        if kind not in self._backend.kinds:
            known = ", ".join(sorted(self._backend.kinds))
            raise CacheError(f"{self._backend.name} has no {kind} memory", f"it has: {known}")
        view = memoryview(memory).cast("B")
        if not len(view):
            raise CacheError("empty memory cannot be registered")
        segment = Segment(
            self._next_id, kind, view, address_of(view), self._nonce(KEY_BYTES), tenant
        )
        self._backend.register(segment)
        self._next_id += 1
        self._segments[segment.id] = segment
        return segment

    def deregister(self, segment: Segment) -> None:
        """Take a segment out of use.

        Raises:
            CacheError: an active transfer uses it, or it is not registered.
        """
        if self._segments.get(segment.id) is not segment:
            raise CacheError(f"segment {segment.id} is not registered")
        if any(pair.segment is segment for handle in self._active for pair in handle.pairs):
            raise CacheError(f"an active transfer uses segment {segment.id}", "release it first")
        del self._segments[segment.id]
        self._backend.deregister(segment)

    # -- metadata --------------------------------------------------------------

    def metadata(self, tenants: Collection[str] = ()) -> bytes:
        """What a peer that may know of ``tenants`` needs: their segments and those that
        are nobody's, and no word of any other."""
        shown = [
            segment
            for segment in self._segments.values()
            if not segment.tenant or segment.tenant in tenants
        ]
        return msgspec.msgpack.encode(
            Blob(
                BLOB_VERSION,
                self.name,
                self.incarnation,
                self._backend.name,
                self._backend.private(shown),
                tuple(
                    RemoteSegment(one.id, one.kind, one.address, len(one.view), one.key)
                    for one in shown
                ),
            )
        )

    def load_remote(self, blob: bytes) -> str:
        """Learn, or learn anew, what another agent says of itself; returns its name.

        Raises:
            RecordError: it is no blob of this version.
            CacheError: it is of another engine, of this agent itself, or of an earlier
                life of an agent that is known.
        """
        try:
            said = msgspec.msgpack.decode(blob, type=Blob)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordError(f"not the metadata of an agent ({error})") from None
        if said.version != BLOB_VERSION:
            raise RecordError(f"metadata version {said.version}, this code reads {BLOB_VERSION}")
        if said.backend != self._backend.name:
            raise CacheError(
                f"agent {said.name!r} uses {said.backend}, {self.name!r} uses {self._backend.name}",
                "run all sites with the same substrate.kind",
            )
        if said.name == self.name:
            raise CacheError(f"agent {self.name!r} was given its own metadata")
        before = self._remotes.get(said.name)
        if before is not None and before.incarnation > said.incarnation:
            raise CacheError(f"metadata of an earlier life of agent {said.name!r}")
        if before is not None and before.incarnation != said.incarnation:
            self.invalidate(said.name)
        remote = Remote(
            said.name,
            said.incarnation,
            said.private,
            {segment.id: segment for segment in said.segments},
        )
        self._backend.load(remote)
        self._remotes[said.name] = remote
        return said.name

    @property
    def remotes(self) -> dict[str, int]:
        """Known agents and their incarnations."""
        return {name: remote.incarnation for name, remote in self._remotes.items()}

    def knows(self, name: str, segments: Collection[int]) -> bool:
        """Is agent ``name`` known, with all of these segments?"""
        remote = self._remotes.get(name)
        return remote is not None and all(one in remote.segments for one in segments)

    def invalidate(self, name: str) -> None:
        """Forget an agent: transfers with it end ``ERR``, and none can be prepared until
        its metadata is loaded again. Nothing happens if it is not known."""
        remote = self._remotes.pop(name, None)
        if remote is None:
            return
        gone = FetchError("unreachable", f"agent {name!r} was invalidated")
        for handle in [one for one in self._active if one.remote.name == name]:
            handle.ended(gone)
        self._backend.forget(remote)

    # -- transfers -------------------------------------------------------------

    def prepare(
        self,
        op: Op,
        local: DescriptorList,
        remote: DescriptorList,
        remote_agent: str,
        notice: bytes = b"",
    ) -> Handle:
        """Check everything, so that posting is cheap.

        Args:
            notice: told to the other agent when the transfer is done.

        Raises:
            CacheError: the agent is not known; the lists differ in number or lengths or
                are empty; a descriptor is not of a known segment, or outside of it.
        """
        known = self._remotes.get(remote_agent)
        if known is None:
            raise CacheError(f"agent {remote_agent!r} is not known", "load its metadata first")
        if len(local.items) != len(remote.items) or not local.items:
            raise CacheError(f"{len(local.items)} local descriptors, {len(remote.items)} remote")
        pairs = []
        for here, there in zip(local.items, remote.items, strict=True):
            if here.length != there.length:
                raise CacheError(f"a local descriptor of {here.length} bytes, {there.length} there")
            own = self._segments.get(here.segment)
            other = known.segments.get(there.segment)
            if own is None or own.kind != local.kind:
                raise CacheError(f"segment {here.segment} of {self.name!r} is no {local.kind}")
            if other is None or other.kind != remote.kind:
                raise CacheError(f"segment {there.segment} of {remote_agent!r} is not known")
            check_range(here, len(own.view), self.name)
            check_range(there, other.length, remote_agent)
            if op == "READ" and own.view.readonly:
                raise CacheError(f"segment {own.id} of {self.name!r} cannot be written to")
            pairs.append(Pair(own, here.offset, other, there.offset, here.length))
        return Handle(self, op, tuple(pairs), known, notice)

    def notify(self, name: str, notice: bytes) -> None:
        """Tell a known agent something that belongs to no transfer.

        Raises:
            CacheError: it is not known.
        """
        remote = self._remotes.get(name)
        if remote is None:
            raise CacheError(f"agent {name!r} is not known", "load its metadata first")
        self._backend.notify(remote, notice)

    def notifications(self) -> list[tuple[str, bytes]]:
        """(agent, notice) of what has come since the last call."""
        came = list(self._notices)
        self._notices.clear()
        return came

    async def close(self) -> None:
        """End all transfers and the engine."""
        for name in list(self._remotes):
            self.invalidate(name)
        await self._backend.close()

    # -- for handles and backends ----------------------------------------------

    def noticed(self, name: str, notice: bytes) -> None:
        """For backends: another agent has told something."""
        if self.on_notice is not None:
            self.on_notice(name, notice)
        else:
            self._notices.append((name, notice))

    def posted(self, handle: Handle, deadline_ns: int) -> None:
        """For handles: it starts."""
        self._active[handle] = None
        if not self._current(handle.remote):
            name = handle.remote.name
            handle.ended(FetchError("stale", f"agent {name!r} is not the one this was made for"))
            return
        self._backend.post(handle, deadline_ns)

    def ended(self, handle: Handle) -> None:
        """For handles: it is over."""
        self._active.pop(handle, None)
        error = handle.error
        if error is not None and error.cause in _GONE and self._current(handle.remote):
            self.invalidate(handle.remote.name)

    def _current(self, remote: Remote) -> bool:
        """Is that agent known, and in the same life?"""
        known = self._remotes.get(remote.name)
        return known is not None and known.incarnation == remote.incarnation

    async def settle(self, handle: Handle) -> None:
        """For handles: end it; no byte of it can land when this returns."""
        handle.ended(FetchError("cancelled", "the transfer was released"))
        await self._backend.settle(handle)
