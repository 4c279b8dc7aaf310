"""What a drill promises beside its invariants: judged lines ``expect:…``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from geokv.measure.checker.finding import Finding
from geokv.measure.checker.history import History
from geokv.measure.drill.fates import Fates
from geokv.measure.drill.recovery import Recovery
from geokv.measure.drill.sites import SiteTimes
from geokv.measure.percentile import percentile
from geokv.measure.result import at_least, at_most
from geokv.measure.statistics.carried import tail
from geokv.scenario.drill import DrillPromises
from geokv.scenario.timeline import Event
from geokv.units import NS_PER_S


def judge_events(timeline: Sequence[Event], seen: Sequence[Recovery]) -> list[Finding]:
    """``expect:NAME.PROMISE`` of every event that promises something."""
    by_name = {recovery.fault.name: recovery for recovery in seen}
    findings = []
    for event in timeline:
        recovery = by_name.get(event.title)
        promised = event.expect.model_dump(exclude_none=True)
        for promise, limit in promised.items():
            name = f"expect:{event.title}.{promise}"
            if recovery is None:
                findings.append(Finding(name, "", None, "the fault was not seen to take effect"))
            elif recovery.fault.problem:
                findings.append(Finding(name, "", None, recovery.fault.problem))
            elif promise == "fetches_lost_at_most":
                lost = recovery.fetches_lost
                ok = lost <= limit
                findings.append(Finding(name, "", ok, f"{lost} lost {at_most(ok)} {limit}"))
            elif promise == "fetches_lost_at_least":
                lost = recovery.fetches_lost
                ok = lost >= limit
                findings.append(Finding(name, "", ok, f"{lost} lost {at_least(ok)} {limit}"))
            else:
                findings.append(_within(name, promise, limit, recovery))
    return findings


def _within(name: str, promise: str, limit_s: float, recovery: Recovery) -> Finding:
    span = recovery.spans()[promise.removesuffix("_within")]
    if span.ns is None:
        return Finding(name, "", None if span.unknown else False, f"never: {span.said}")
    ok = span.ns <= limit_s * NS_PER_S
    said = f"{span.ns / 1e6:.3f} ms {at_most(ok)} {limit_s * 1000:g} ms ({span.said})"
    return Finding(name, "", ok, said)


def judge_drill(
    promises: DrillPromises | None, history: History, found: Fates, sites: Sequence[SiteTimes]
) -> list[Finding]:
    """``expect:PROMISE`` of the whole drill."""
    if promises is None:
        return []
    findings = []
    rows = [one for one, _ in found.by_request]
    answered = [one for one in rows if one.ok]
    if promises.answered is not None:
        share = len(answered) / len(rows) if rows else None
        findings.append(_at_least("answered", share, promises.answered, len(rows)))
    if promises.ttft_p99_at_most is not None:
        findings.append(_p99(promises.ttft_p99_at_most, [one.ttft_ns for one in answered]))
    if promises.hit_rate_at_least is not None:
        hits = sum(one.cached_tokens > 0 for one in answered)
        rate = hits / len(answered) if answered else None
        limit = promises.hit_rate_at_least
        findings.append(_at_least("hit_rate_at_least", rate, limit, len(answered)))
    if promises.refused_at_least is not None:
        refused = found.requests["refused"]
        ok = refused >= promises.refused_at_least
        said = f"{refused} requests {at_least(ok)} {promises.refused_at_least}"
        findings.append(Finding("expect:refused_at_least", "", ok, said))
    by_name = {one.site: one for one in sites}
    for site, percent in promises.ttft_rise_percent_at_most.items():
        findings.append(_rise(site, percent, by_name.get(site)))
    misses = misses_by_cause(history)
    for cause, count in promises.misses_at_least.items():
        ok = misses[cause] >= count
        said = f"{misses[cause]} misses {at_least(ok)} {count}"
        findings.append(Finding(f"expect:misses_at_least.{cause}", "", ok, said))
    for cause, count in promises.misses_at_most.items():
        ok = misses[cause] <= count
        said = f"{misses[cause]} misses {at_most(ok)} {count}"
        findings.append(Finding(f"expect:misses_at_most.{cause}", "", ok, said))
    return findings


def misses_by_cause(history: History) -> Counter[str]:
    """Every miss that a site counted, in order of cause."""
    seen = Counter(str(event.get("cause", "")) for event in history.of("miss"))
    return Counter({cause: seen[cause] for cause in sorted(seen)})


def _at_least(name: str, share: float | None, limit: float, n: int) -> Finding:
    if share is None:
        return Finding(f"expect:{name}", "", None, "there is nothing to judge by")
    ok = share >= limit
    return Finding(f"expect:{name}", "", ok, f"{share:.4f} {at_least(ok)} {limit:g} (n = {n})")


def _rise(site: str, percent: float, seen: SiteTimes | None) -> Finding:
    """Median and slowest of what a site was asked while faults lasted, against those before."""
    name = f"expect:ttft_rise_percent_at_most.{site}"
    if seen is None or (factor := seen.rise) is None:
        said = f"{site} answered nothing before the first fault, or nothing while one lasted"
        return Finding(name, "", None, said)
    ok = 100 * (factor - 1) <= percent
    usual, then = seen.before, seen.during
    assert usual.p50_ns and usual.max_ns and then.p50_ns and then.max_ns, "it has a rise"
    said = (
        f"{100 * (factor - 1):+.2f} % {at_most(ok)} {percent:g} %: median "
        f"{usual.p50_ns / 1e6:.3f} → {then.p50_ns / 1e6:.3f} ms, slowest "
        f"{usual.max_ns / 1e6:.3f} → {then.max_ns / 1e6:.3f} ms (n = {usual.asked}, {then.asked})"
    )
    return Finding(name, "", ok, said)


def _p99(limit_s: float, samples: Sequence[int | None]) -> Finding:
    """At most one request in a hundred took longer. That is a count, which needs no estimate; of
    fewer than a hundred none may."""
    seen = [value for value in samples if value is not None]
    if not seen:
        return Finding("expect:ttft_p99_at_most", "", None, "no request was answered")
    p99 = percentile(seen, 0.99)
    ok = p99 <= limit_s * NS_PER_S
    which = "" if tail(seen, 0.99) is not None else "the slowest: "
    said = f"{which}{p99 / 1e6:.3f} ms {at_most(ok)} {limit_s * 1000:g} ms (n = {len(seen)})"
    return Finding("expect:ttft_p99_at_most", "", ok, said)
