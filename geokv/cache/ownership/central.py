"""One table at one site. Others ask it over the link and pay the round trip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from geokv.cache.history import History
from geokv.cache.ownership.directory import Spawn
from geokv.cache.ownership.traffic import Traffic
from geokv.cache.substrate import Handler, Transport
from geokv.cache.substrate.transport import Caller
from geokv.errors import CacheError, RecordError

_PREFIX = "directory."


class CentralTable:
    """Key -> sites, fenced by incarnation.

    A site's entries belong to one life of it. When a newer life joins, all older
    entries are forgotten; what a dead life still says afterwards is refused.
    """

    def __init__(self) -> None:
        self._lives: dict[str, int] = {}
        self._sites: dict[bytes, dict[str, None]] = {}
        self._keys: dict[str, dict[bytes, None]] = {}
        self.counters: Counter[str] = Counter()

    def join(self, site: str, incarnation: int) -> int:
        """Begin (or confirm) a life; returns how many old entries were forgotten.

        Raises:
            CacheError: a newer life of the site has joined before.
        """
        known = self._lives.get(site)
        if known is not None and incarnation < known:
            self.counters["fenced"] += 1
            raise CacheError(
                f"incarnation {incarnation} of {site!r} is over: {known} has joined since"
            )
        if known == incarnation:
            return 0
        self._lives[site] = incarnation
        old = list(self._keys.get(site, ()))
        self._remove(site, old)
        self.counters["joins"] += 1
        return len(old)

    def publish(self, site: str, incarnation: int, keys: Sequence[bytes]) -> None:
        """``site`` has ``keys``. Raises ``CacheError`` if that life is over."""
        self.join(site, incarnation)
        self._add(site, keys)
        self.counters["published"] += len(keys)

    def withdraw(self, site: str, incarnation: int, keys: Sequence[bytes]) -> None:
        """``site`` no longer has ``keys``. Raises ``CacheError`` if that life is over."""
        self.join(site, incarnation)
        self._remove(site, keys)
        self.counters["withdrawn"] += len(keys)

    def locate(self, keys: Sequence[bytes]) -> list[tuple[str, ...]]:
        """For each key its sites, the longest holder first."""
        self.counters["lookups"] += 1
        return [tuple(self._sites.get(key, ())) for key in keys]

    def entries(self) -> dict[bytes, tuple[str, ...]]:
        """Key -> sites."""
        return {key: tuple(sites) for key, sites in self._sites.items()}

    def __len__(self) -> int:
        """How many (key, site) pairs are known."""
        return sum(map(len, self._keys.values()))

    def check_integrity(self) -> None:
        """Both indexes agree and hold nothing empty.

        Raises:
            CacheError: they do not.
        """
        pairs = {(key, site) for key, sites in self._sites.items() for site in sites}
        other = {(key, site) for site, keys in self._keys.items() for key in keys}
        if pairs != other or not all(self._sites.values()):
            raise CacheError("the directory's two indexes differ")

    def _add(self, site: str, keys: Sequence[bytes]) -> None:
        mine = self._keys.setdefault(site, {})
        for key in keys:
            self._sites.setdefault(key, {})[site] = None
            mine[key] = None

    def _remove(self, site: str, keys: Sequence[bytes]) -> None:
        mine = self._keys.get(site, {})
        for key in keys:
            if key in mine:
                del mine[key]
                sites = self._sites[key]
                del sites[site]
                if not sites:
                    del self._sites[key]


class CentralDirectory:
    """A site's way to the table.

    Args:
        host_site: the site that keeps the table; that site answers itself locally.
    """

    def __init__(self, host_site: str) -> None:
        self.host_site = host_site
        self.table: CentralTable | None = None
        self._site = ""
        self._transport: Transport | None = None
        self._calls: Counter[str] = Counter()
        self._traffic = Traffic()

    def bind(self, site: str, transport: Transport) -> Mapping[str, Handler]:
        self._site = site
        self._transport = transport
        if site != self.host_site:
            return {}
        self.table = CentralTable()
        return {
            _PREFIX + name: self._handler(name)
            for name in ("join", "publish", "withdraw", "locate")
        }

    def attach(
        self,
        history: History,
        spawn: Spawn,
        here: Callable[[bytes], bool],
        found: Sequence[bytes] = (),
    ) -> None:
        return None

    def close(self) -> None:
        return None

    def peer_down(self, site: str) -> None:
        return None

    def peer_up(self, site: str) -> None:
        return None

    async def join(self, deadline_ns: int) -> None:
        await self._ask("join", (), deadline_ns)

    async def publish(self, keys: Sequence[bytes], deadline_ns: int) -> int:
        await self._ask("publish", keys, deadline_ns)
        return 0

    async def withdraw(self, keys: Sequence[bytes], deadline_ns: int) -> int:
        await self._ask("withdraw", keys, deadline_ns)
        return 0

    async def locate(self, keys: Sequence[bytes], deadline_ns: int) -> list[tuple[str, ...]]:
        found = await self._ask("locate", keys, deadline_ns)
        if len(found) != len(keys):
            raise RecordError(f"the directory answered {len(found)} of {len(keys)} keys")
        return found

    def entries(self) -> dict[bytes, tuple[str, ...]] | None:
        return self.table.entries() if self.table is not None else None

    def stats(self) -> dict[str, Any]:
        counters = dict(self.table.counters) if self.table is not None else {}
        entries = len(self.table) if self.table is not None else None
        return {
            "kind": "central",
            "host_site": self.host_site,
            "entries": entries,
            "calls": dict(self._calls),
            "traffic": self._traffic.stats(),
            **counters,
        }

    def check_integrity(self) -> None:
        """The table's two indexes agree, at the site that keeps it."""
        if self.table is not None:
            self.table.check_integrity()

    async def _ask(
        self, name: str, keys: Sequence[bytes], deadline_ns: int
    ) -> list[tuple[str, ...]]:
        if self._transport is None:
            raise CacheError("the directory is not bound to a site yet")
        self._calls[name] += 1
        if self.table is not None:
            return self._apply(name, Caller(self._site, self._transport.incarnation), keys)
        body = msgspec.msgpack.encode(list(keys))
        method = _PREFIX + name
        answer = await self._traffic.call(
            self._transport, self.host_site, method, body, deadline_ns, name
        )
        located: list[tuple[str, ...]] = _decode(answer, list[tuple[str, ...]])
        return located

    def _handler(self, name: str) -> Handler:
        async def handle(caller: Caller, body: bytes) -> bytes:
            return msgspec.msgpack.encode(self._apply(name, caller, _decode(body, list[bytes])))

        return handle

    def _apply(self, name: str, caller: Caller, keys: Sequence[bytes]) -> list[tuple[str, ...]]:
        if self.table is None:
            raise CacheError(f"{self._site!r} does not keep the directory")
        if name == "locate":
            return self.table.locate(keys)
        if name == "join":
            self.table.join(caller.site, caller.incarnation)
        elif name == "publish":
            self.table.publish(caller.site, caller.incarnation, keys)
        else:
            self.table.withdraw(caller.site, caller.incarnation, keys)
        return []


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"not a directory message ({error})") from None
