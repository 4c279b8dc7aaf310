"""A tiny cache that keeps every promise, and writes down what it does as sites and coordinator do.

Three sites, two tenants, three prefixes of two chunks each. Steps come from outside; whatever they
are, the history that comes of them has nothing wrong in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from geokv.measure.checker import Event, History

SITES = ("a", "b", "c")
TENANTS = ("t0", "t1")
PREFIXES = 3
CHUNK_TOKENS = 16
CHUNKS = 2
PLACES = 8
MS = 1_000_000
Step = tuple[Any, ...]


@dataclass
class Copy:
    place: int
    generation: int
    """Of this site's place."""
    stamp: tuple[int, int]
    """Generation and incarnation that the header carries: of whoever filled it."""


@dataclass
class Site:
    life: int = 1
    up: bool = True
    dram: dict[str, Copy] = field(default_factory=dict)
    fillings: int = 0

    def place(self) -> int:
        taken = {copy.place for copy in self.dram.values()}
        return next(place for place in range(PLACES) if place not in taken)


class HonestCache:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now_ns = 0
        self.sites = {name: Site() for name in SITES}
        self.directory: dict[str, dict[str, None]] = {}
        self.cut: set[str] = set()
        self.asked: list[tuple[str, list[int]]] = []
        self.requests = self.purges = 0
        self.note("drill-begin", label="honest", publish="all", control=False)
        for name in SITES:
            self.note("life", name, incarnation=1, phase="started")
            self.note("life", name, incarnation=1, phase="serving")
        self.note("links", phase="before", link="a-b", ok=True, problems=[])

    def note(self, op: str, site: str = "", **fields: Any) -> Event:
        self.now_ns += MS
        event = {"t_ns": self.now_ns, "site": site, "op": op, **fields}
        self.events.append(event)
        return event

    # -- what may happen -----------------------------------------------------------

    def run(self, steps: list[Step]) -> History:
        for name, *args in steps:
            getattr(self, name)(*args)
        return self.end()

    def ask(self, site: str, tenant: int, prefix: int) -> None:
        tokens = prompt(tenant, prefix, self.requests)
        name = f"r{self.requests}"
        self.requests += 1
        self.asked.append((name, tokens))
        base = {"request_id": name, "tenant": TENANTS[tenant]}
        sent = self.note(
            "request", site, **base, prompt=tokens, prompt_tokens=len(tokens),
            deadline_ns=self.now_ns + 500 * MS,
        )  # fmt: skip
        here = self.sites[site]
        if not here.up:
            self.answer(site, sent, [], [], status="error", error="connection refused")
            return
        sources: list[str] = []
        misses: dict[str, int] = {}
        self.note("lookup", site, key=keys(tenant, prefix)[-1], request_id=name, lookup_ns=MS // 2)
        for key in keys(tenant, prefix):
            source, cause = self.find(site, TENANTS[tenant], key)
            if cause:
                self.note("miss", site, key=key, cause=cause, request_id=name)
                misses[cause] = misses.get(cause, 0) + 1
                break
            copy = here.dram[key]
            self.note(
                "use", site, key=key, source=source, **base, generation=copy.stamp[0],
                incarnation=copy.stamp[1], checksums=checksums(key),
            )  # fmt: skip
            sources.append(source)
        for key in keys(tenant, prefix)[len(sources) :]:
            self.store(site, TENANTS[tenant], key)
        self.answer(site, sent, tokens, sources, misses=misses)

    def kill(self, site: str) -> None:
        here = self.sites[site]
        if here.up:
            here.up = False
            here.dram.clear()
            self.forget(site)
            self.note("life", site, incarnation=here.life, phase="killed")

    def restart(self, site: str) -> None:
        here = self.sites[site]
        if not here.up:
            here.up = True
            here.life += 1
            here.fillings = 0
            self.note("life", site, incarnation=here.life, phase="started")
            self.note("life", site, incarnation=here.life, phase="serving")

    def evict(self, site: str, number: int) -> None:
        held = list(self.sites[site].dram)
        if held:
            self.remove("evict", site, held[number % len(held)])

    def drop(self, site: str) -> None:
        for key in list(self.sites[site].dram):
            self.remove("drop", site, key)

    def sever(self, site: str) -> None:
        self.cut ^= {site}

    def purge(self, tenant: int) -> None:
        name = f"p{self.purges}"
        self.purges += 1
        base = {"purge_id": name, "tenant": TENANTS[tenant]}
        self.note("purge", "a", phase="asked", **base)
        for site in SITES:
            for key in [k for k in self.sites[site].dram if k.startswith(TENANTS[tenant])]:
                self.remove("drop", site, key)
        self.note("purge", "a", phase="acked", **base)

    # -- how it does it --------------------------------------------------------------

    def find(self, site: str, tenant: str, key: str) -> tuple[str, str]:
        """Where it came from, or why it did not."""
        here = self.sites[site]
        if key in here.dram:
            return "dram", ""
        holders = [name for name in self.directory.get(key, ()) if name != site]
        if not holders:
            return "", "absent"
        source = holders[0]
        if site in self.cut or source in self.cut:
            self.note("fetch", site, key=key, source=source, cause="timeout")
            return "", "timeout"
        if len(here.dram) >= PLACES:
            return "", "full"
        sender, copy = self.sites[source], self.sites[source].dram[key]
        asked_ns = self.now_ns + MS // 2
        sums = checksums(key)
        self.note(
            "serve", source, key=key, peer=site, generation=copy.generation,
            incarnation=sender.life, sent_bytes=64, total_bytes=64, cause="",
        )  # fmt: skip
        mine = Copy(here.place(), self.filled(here), (copy.generation, sender.life))
        here.dram[key] = mine
        self.note(
            "fetch", site, key=key, source=source, cause="", tenant=tenant, place=mine.place,
            generation=copy.generation, incarnation=sender.life, checksums=sums,
            asked_ns=asked_ns,
        )  # fmt: skip
        self.publish(site, key)
        return source, ""

    def store(self, site: str, tenant: str, key: str) -> None:
        here = self.sites[site]
        if key in here.dram or len(here.dram) >= PLACES:
            return
        generation = self.filled(here)
        copy = Copy(here.place(), generation, (generation, here.life))
        here.dram[key] = copy
        self.note(
            "store", site, key=key, tenant=tenant, tier="dram", place=copy.place,
            generation=generation, incarnation=here.life, checksums=checksums(key),
        )  # fmt: skip
        self.publish(site, key)

    def filled(self, here: Site) -> int:
        here.fillings += 1
        return here.fillings

    def publish(self, site: str, key: str) -> None:
        self.directory.setdefault(key, {})[site] = None
        self.note("publish", site, key=key)

    def remove(self, op: str, site: str, key: str) -> None:
        copy = self.sites[site].dram.pop(key)
        self.note(op, site, key=key, tier="dram", place=copy.place)
        del self.directory[key][site]
        self.note("withdraw", site, key=key)

    def forget(self, site: str) -> None:
        for sites in self.directory.values():
            sites.pop(site, None)

    def answer(
        self, site: str, sent: Event, tokens: list[int], sources: list[str], **more: Any
    ) -> None:
        done_ns = self.now_ns + MS
        remote = [source for source in sources if source in SITES]
        fields = {
            "status": "ok", "error": "", "output_ids": output(tokens), "first_ns": done_ns,
            "done_ns": done_ns, "ttft_ns": done_ns - sent["t_ns"],
            "cached_tokens": CHUNK_TOKENS * len(sources), "chunks_remote": len(remote),
            "chunks_local": len(sources) - len(remote), "misses": {}, **more,
        }  # fmt: skip
        self.note("answer", site, request_id=sent["request_id"], tenant=sent["tenant"], **fields)

    def end(self) -> History:
        self.note("stream-end")
        for name, site in self.sites.items():
            if not site.up:
                continue
            self.note("integrity", name, result="ok")
            parts = {"free": PLACES - len(site.dram), "cached": len(site.dram)}
            nothing = {"pinned": 0, "reserved": 0, "leases": 0, "promised": 0}
            self.note("pools", name, dram={"total": PLACES, **parts, **nothing})
            self.note("held", name, dram=list(site.dram))
        table = {key: list(sites) for key, sites in self.directory.items() if sites}
        self.note("directory", "a", here=True, keys=table)
        self.note("quiesced", ok=True, said="")
        self.note("links", phase="after", link="a-b", ok=True, problems=[])
        for _, tokens in self.asked:
            self.note("cold", prompt=tokens, output_ids=output(tokens))
        self.note("drill-end")
        return History(self.events, 0, "honest")


def prompt(tenant: int, prefix: int, number: int) -> list[int]:
    start = 1000 * (1 + prefix + 10 * tenant)
    return [*range(start, start + CHUNKS * CHUNK_TOKENS), number, number + 1]


def keys(tenant: int, prefix: int) -> list[str]:
    return [f"{TENANTS[tenant]}-{prefix}-{chunk}" for chunk in range(CHUNKS)]


def checksums(key: str) -> list[str]:
    return [f"{key}:{group}" for group in range(2)]


def output(tokens: list[int]) -> list[int]:
    return [sum(tokens) % 251, len(tokens)] if tokens else []
