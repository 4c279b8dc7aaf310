"""Small histories by hand: one line per event, times in ms."""

from __future__ import annotations

from typing import Any

from geokv.measure.checker import Event, History

MS = 1_000_000
GOOD = ["aa", "bb"]
BAD = ["aa", "b0"]
PROMPT = list(range(40))
ANSWER = [7, 8, 9]


def ev(t_ms: float, op: str, site: str = "", **fields: Any) -> Event:
    return {"t_ns": round(t_ms * MS), "site": site, "op": op, **fields}


def history(*events: Event) -> History:
    return History(sorted(events, key=lambda event: int(event["t_ns"])))


def store(t_ms: float, site: str = "a", key: str = "k1", **fields: Any) -> Event:
    base = {"tenant": "t0", "tier": "dram", "generation": 1, "incarnation": 1, "place": 0}
    return ev(t_ms, "store", site, key=key, **{**base, "checksums": GOOD, **fields})


def fetch(t_ms: float, site: str = "b", key: str = "k1", source: str = "a", **fields: Any) -> Event:
    """Asked for half a ms before it came."""
    base = {
        "tenant": "t0", "cause": "", "generation": 1, "incarnation": 1, "place": 0,
        "asked_ns": round((t_ms - 0.5) * MS),
    }  # fmt: skip
    return ev(t_ms, "fetch", site, key=key, source=source, **{**base, "checksums": GOOD, **fields})


def lost(t_ms: float, cause: str, site: str = "b", key: str = "k1", source: str = "a") -> Event:
    return ev(t_ms, "fetch", site, key=key, source=source, cause=cause)


def use(t_ms: float, site: str = "b", key: str = "k1", source: str = "a", **fields: Any) -> Event:
    base = {"request_id": "r1", "tenant": "t0", "generation": 1, "incarnation": 1}
    return ev(t_ms, "use", site, key=key, source=source, **{**base, "checksums": GOOD, **fields})


def lookup(t_ms: float, site: str = "b", began_ms: float = 0.0, name: str = "r1") -> Event:
    """A plan that was ready at ``t_ms``."""
    return ev(
        t_ms, "lookup", site, key="k1", request_id=name, asked=1, local=1, promoted=0, remote=0,
        lookup_ns=round((t_ms - began_ms) * MS),
    )  # fmt: skip


def gone(t_ms: float, site: str = "a", op: str = "drop", tier: str = "dram") -> Event:
    return ev(t_ms, op, site, key="k1", tier=tier, place=0)


def serve(t_ms: float, site: str = "a", key: str = "k1", peer: str = "b", **fields: Any) -> Event:
    base = {"generation": 1, "incarnation": 1, "sent_bytes": 100, "total_bytes": 100, "cause": ""}
    return ev(t_ms, "serve", site, key=key, peer=peer, **{**base, **fields})


def rotted(t_ms: float, site: str = "a", key: str = "k1") -> Event:
    evidence = {"seen": "one bit has flipped", "keys": [key]}
    return ev(
        t_ms, "fault", name="rot", kind="bit-rot", phase="took-effect", target=site,
        evidence=evidence,
    )  # fmt: skip


def spoilt(t_ms: float, site: str = "a", *keys: str) -> Event:
    """What a site says whose books are right and whose bytes are not: of ``k1`` by default."""
    damaged = {"dram": list(keys or ["k1"])}
    said = f"dram: chunk {damaged['dram'][0]} does not match its checksums"
    return ev(t_ms, "integrity", site, result=said, damaged=damaged)


def life(t_ms: float, site: str, incarnation: int, phase: str = "serving") -> Event:
    return ev(t_ms, "life", site, incarnation=incarnation, phase=phase)


def request(t_ms: float, name: str = "r1", site: str = "b", **fields: Any) -> Event:
    base = {"tenant": "t0", "prompt": PROMPT, "prompt_tokens": 40}
    deadline_ns = round(t_ms * MS) + 1000 * MS
    return ev(
        t_ms, "request", site, request_id=name, **{**base, "deadline_ns": deadline_ns, **fields}
    )


def answer(t_ms: float, name: str = "r1", site: str = "b", **fields: Any) -> Event:
    """Done at ``t_ms``, first token 2 ms before, TTFT 10 ms."""
    done_ns = round(t_ms * MS)
    base = {
        "status": "ok", "error": None, "output_ids": ANSWER, "first_ns": done_ns - 2 * MS,
        "done_ns": done_ns, "ttft_ns": 10 * MS, "cached_tokens": 0, "source": "none",
        "chunks_remote": 0, "chunks_local": 0, "misses": {},
    }  # fmt: skip
    return ev(t_ms, "answer", site, request_id=name, **{**base, **fields})


def probes(**ttft_ms: list[float]) -> list[Event]:
    """A request and its answer of each kind in turn, by the kind's name with ``_`` for ``-``."""
    events: list[Event] = []
    for number in range(max(map(len, ttft_ms.values()))):
        for kind, times in ttft_ms.items():
            if number < len(times):
                at, name = len(events) * 50.0, f"{kind}-{number}"
                events += [
                    request(at, name, probe=kind.replace("_", "-")),
                    answer(at + 40, name, ttft_ns=round(times[number] * MS)),
                ]
    return events


def cold(t_ms: float, prompt: Any = PROMPT, output_ids: list[int] = ANSWER) -> Event:
    return ev(t_ms, "cold", prompt=prompt, output_ids=output_ids)


def purge(t_ms: float, phase: str, name: str = "p1", **fields: Any) -> Event:
    return ev(t_ms, "purge", "a", purge_id=name, phase=phase, tenant="t0", **fields)


def heard(t_ms: float, site: str = "c", purge_id: str = "p1") -> Event:
    """A site has learnt of a purge: the first is its authority."""
    return ev(t_ms, "purge", site, scope="t0", purge_id=purge_id, phase="heard", seq=1)


def peer(t_ms: float, how: str, other: str = "c") -> Event:
    """What the site that asks for purges has found out of another."""
    return ev(t_ms, f"peer-{how}", "a", peer=other, cause="silent", incarnation=1)


def pools(t_ms: float, site: str = "a", **fields: Any) -> Event:
    base = {
        "total": 8, "free": 5, "cached": 3, "pinned": 0, "reserved": 0, "leases": 0, "promised": 0
    }  # fmt: skip
    return ev(t_ms, "pools", site, dram={**base, **fields})


def held(t_ms: float, site: str, *keys: str) -> Event:
    return ev(t_ms, "held", site, dram=list(keys))


def directory(t_ms: float, **keys: list[str]) -> Event:
    return ev(t_ms, "directory", "a", here=True, keys=keys)


def fault(t_ms: float, phase: str, name: str = "cut", **fields: Any) -> Event:
    base = {"kind": "link-cut", "target": "a-b", "evidence": {"seen": f"{name} {phase}"}}
    return ev(t_ms, "fault", name=name, phase=phase, **{**base, **fields})


def revoked(t_ms: float, phase: str = "took-effect") -> Event:
    return fault(t_ms, phase, "revoked", kind="key-revoke", target="t0")


def links(t_ms: float, phase: str, ok: bool = True) -> Event:
    problems = [] if ok else ["rtt is 2 ms, not 1"]
    return ev(t_ms, "links", phase=phase, link="a-b", ok=ok, problems=problems)
