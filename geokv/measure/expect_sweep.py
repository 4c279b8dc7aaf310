"""Judge promises about a sweep as a whole: how one value changes what is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geokv.measure.cell import CellResult
from geokv.measure.closed_form import layered_ttft_ns
from geokv.measure.crossover import crossovers
from geokv.measure.lines import OfCell, Reduced
from geokv.measure.result import Result, at_least, at_most, indices
from geokv.scenario.expect import Tier
from geokv.scenario.promises import BreakEven, Change, ClosedForm, Overlap, Where
from geokv.scenario.sweep import label
from geokv.units import NS_PER_S

REMOTE = "remote-hit"


def closed_form(limit: ClosedForm, near: list[CellResult]) -> Result:
    """Every fetch against the time it takes on paper."""
    name = "closed_form_within"
    here = [cell for cell in near if (cell.rtt_asked_ns or 0) >= limit.from_rtt_ms * 1e6]
    used = indices(here)
    seen = [
        (one.off, cell)
        for cell in here
        if (one := cell.fetching.get(REMOTE)) is not None and one.off is not None
    ]
    if not seen:
        return Result(name, None, "no cell has a fetch that the closed form describes", used)
    if len(seen) < len(here):
        lack = len(here) - len(seen)
        return Result(name, None, f"{lack} of {len(here)} cells have no such fetch", used)
    worst, cell = max(seen, key=lambda item: abs(item[0]))
    ok = 100 * abs(worst) <= limit.percent
    said = (
        f"{len(seen)} fetches; farthest off by {100 * worst:+.2f} % {at_most(ok)} "
        f"{limit.percent:g} % ({cell.cell.label})"
    )
    return Result(name, ok, said, used)


def overlap(limit: Overlap, near: list[CellResult]) -> Result:
    """Every remote hit in layer groups against load and compute side by side."""
    name = "overlap_within"
    here = [cell for cell in near if cell.cell.scenario.deployment.layer_groups > 1]
    used = indices(here)
    seen = [
        (arm.p50_ns / bound - 1, cell)
        for cell in here
        if (arm := cell.arms.get(REMOTE)) is not None
        and arm.p50_ns is not None
        and (bound := _overlapped_ns(cell)) is not None
    ]
    if not seen or len(seen) < len(here):
        lack = len(here) - len(seen)
        return Result(name, None, f"not tested in {lack} of {len(here)} cells with groups", used)
    worst, cell = max(seen, key=lambda item: item[0])
    ok = 100 * worst <= limit.percent
    said = (
        f"{len(seen)} cells; at most {100 * worst:+.2f} % {at_most(ok)} {limit.percent:g} % over "
        f"load and compute side by side ({cell.cell.label})"
    )
    return Result(name, ok, said, used)


def _overlapped_ns(cell: CellResult) -> int | None:
    """What overlapping leaves: the lookup, and the closed form of a layered hit.

    Where pieces are too small for the distance, loading is what the closed form of the fetch says
    and not what the line could do.
    """
    remote, local, path = cell.arms.get(REMOTE), cell.arms.get("local-hit"), cell.path
    fetching = cell.fetching.get(REMOTE)
    if not cell.valid or path is None or remote is None or local is None or fetching is None:
        return None
    if "prefill" not in local.spans_ns:
        return None
    if fetching.predicted_ns is not None:
        load_ns = fetching.predicted_ns - path.rtt_ns
    else:
        load_ns = round(remote.wire_bytes * 8 * NS_PER_S / path.payload_rate_bps)
    groups = cell.cell.scenario.deployment.layer_groups
    hit_ns = layered_ttft_ns(load_ns, local.spans_ns["prefill"], groups, path.rtt_ns)
    return remote.spans_ns["lookup"] + hit_ns


def break_even(limit: BreakEven, near: list[CellResult]) -> Result:
    """Every measured cross-over against the balance of bytes, round trips and prefill."""
    name = "break_even_within"
    used = indices(near)
    lines = crossovers(near)
    if not any(line.expected or line.measured_bps for line in lines):
        return Result(name, None, "no cross-over lies between the rates of any line", used)
    for line in lines:
        place = label(line.settings)
        if line.expected and line.measured_bps is None:
            said = f"{place}: none seen, predicted at {_gbps(line.predicted_bps)}"
            return Result(name, False, said, used)
        if line.measured_bps is not None and line.off is None:
            said = f"{place}: seen at {_gbps(line.measured_bps)}, predicted at none"
            return Result(name, False, said, used)
    seen = [(line.off, line) for line in lines if line.off is not None]
    worst, line = max(seen, key=lambda item: abs(item[0]))
    ok = 100 * abs(worst) <= limit.percent
    said = (
        f"{len(seen)} cross-overs of {len(lines)} lines; farthest off by {100 * worst:+.1f} % "
        f"{at_most(ok)} {limit.percent:g} %: {_gbps(line.measured_bps)} seen, "
        f"{_gbps(line.predicted_bps)} predicted ({label(line.settings)})"
    )
    return Result(name, ok, said, used)


def change(limit: Change, near: list[CellResult], number: int) -> Result:
    """One promised factor, in every pair of cells it is about."""
    return judge_change(limit, near, number, _value, "a remote hit")


def judge_change(
    limit: Change,
    near: Sequence[Reduced],
    number: int,
    value: Callable[[Reduced, str], float | None],
    whose: str,
) -> Result:
    """The same of cells of whatever kind.

    Args:
        value: what ``limit.of`` names in a cell; None where it has none.
        whose: what has that value, in words.
    """
    name = f"changes.{number}"
    here = [cell for cell in near if _is(cell, limit.where)]
    pairs = [
        (one, other)
        for one in here
        if one.cell.settings.get(limit.along) == limit.start
        for other in here
        if other.cell.settings == {**one.cell.settings, limit.along: limit.end}
    ]
    used = tuple(cell.cell.index for pair in pairs for cell in pair)
    factors = []
    for one, other in pairs:
        before, after = value(one, limit.of), value(other, limit.of)
        if before and after:
            factors.append((after / before, other))
    about = f"{limit.of} of {whose} from {limit.along} {limit.start} to {limit.end}"
    if not pairs or len(factors) < len(pairs):
        return Result(name, None, f"not tested: {about}", used)
    for least, bound in ((True, limit.at_least), (False, limit.at_most)):
        if bound is None:
            continue
        pick = min if least else max
        factor, cell = pick(factors, key=lambda item: item[0])
        ok = factor >= bound if least else factor <= bound
        sign = at_least(ok) if least else at_most(ok)
        said = f"{about}: × {factor:.3g} {sign} {bound:g} ({cell.cell.label})"
        if not ok:
            return Result(name, False, said, used)
    return Result(name, True, said, used)


def tiers_used(tiers: list[Tier], near: list[CellResult]) -> Result:
    """Each tier served some tokens of a remote hit somewhere."""
    name = "tiers_used"
    shares = [cell.hits[REMOTE] for cell in near if REMOTE in cell.hits]
    if not shares:
        return Result(name, None, "no remote-hit request was answered")
    idle = [tier for tier in tiers if not any(share.tokens[tier] for share in shares)]
    if idle:
        return Result(name, False, f"nothing was served from {', '.join(idle)}")
    said = ", ".join(f"{tier} {sum(s.tokens[tier] for s in shares):,}" for tier in tiers)
    return Result(name, True, f"prompt tokens served: {said}")


def _value(cell: CellResult, of: str) -> float | None:
    if not cell.valid:
        return None
    if of in ("ttft", "ttft_p99"):
        arm = cell.arms.get(REMOTE)
        if arm is None:
            return None
        return arm.ttft.p99_ns if of == "ttft_p99" else arm.p50_ns
    one = cell.fetching.get(REMOTE)
    if one is None:
        return None
    return one.goodput_bps if of == "goodput" else one.time_ns


def _is(cell: OfCell, where: Where) -> bool:
    return all(cell.cell.settings.get(title) == value for title, value in where.items())


def _gbps(rate_bps: float | None) -> str:
    return "no rate" if rate_bps is None else f"{rate_bps / NS_PER_S:.3g} Gb/s"
