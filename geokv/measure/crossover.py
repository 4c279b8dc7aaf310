"""Where a sweep of the line rate shows that fetching begins to pay, and where it should."""

from __future__ import annotations

from dataclasses import dataclass

from geokv.measure.break_even import bytes_per_flop, crossing, least_rate_bps
from geokv.measure.cell import CellResult
from geokv.measure.lines import lines_along
from geokv.measure.records import Formula
from geokv.scenario.directory import CentralDirectory
from geokv.scenario.sweep import Value


@dataclass(frozen=True)
class Crossover:
    """One line of cells that differ by their rate alone.

    Attributes:
        settings: what they share.
        cells: their numbers, by rising rate.
        rates_bps: line rates at full size.
        measured_bps: where TTFT(remote hit) / TTFT(recompute) passes 1, between two rates;
            None when no two lie on both sides.
        predicted_bps: ``least_rate_bps`` as a line rate; None when no rate is enough.
        tokens: of the prefix that is fetched.
    """

    settings: dict[str, Value]
    cells: tuple[int, ...]
    rates_bps: tuple[int, ...]
    measured_bps: float | None
    predicted_bps: float | None
    tokens: int

    @property
    def expected(self) -> bool:
        """Whether the prediction lies between two of the rates."""
        low, high = self.rates_bps[0], self.rates_bps[-1]
        return self.predicted_bps is not None and low < self.predicted_bps < high

    @property
    def off(self) -> float | None:
        """Measured over predicted, less one."""
        if self.measured_bps is None or self.predicted_bps is None:
            return None
        return self.measured_bps / self.predicted_bps - 1


def crossovers(results: list[CellResult]) -> list[Crossover]:
    """One per combination of the other settings; none where no single rate is swept."""
    titles = dict.fromkeys(title for one in results for title in one.cell.settings)
    swept = [title for title in titles if title.startswith("links.") and title.endswith(".rate")]
    if len(swept) != 1:
        return []
    seen = [
        one
        for one in results
        if one.gain is not None and one.bound_ns is not None and "remote-hit" in one.fetching
    ]
    return [_line(settings, line) for settings, line in lines_along(swept[0], seen)]


def _line(settings: dict[str, Value], line: list[CellResult]) -> Crossover:
    line.sort(key=_rate_bps)
    rates = [_rate_bps(one) for one in line]
    ratios = [1 - one.gain for one in line if one.gain is not None]
    return Crossover(
        settings,
        tuple(one.cell.index for one in line),
        tuple(rates),
        crossing(rates, ratios),
        _predicted(line[0]),
        line[0].fetching["remote-hit"].chunks * line[0].cell.scenario.deployment.chunk_tokens,
    )


def formula_bps(line: Crossover, formula: Formula) -> float:
    """Mooncake's B/G rule as a rate: no distance, and every GPU at its peak."""
    ratio = bytes_per_flop(line.tokens, formula.width, formula.gqa, b=formula.matrix_operations)
    return ratio * formula.flops * 8


def _rate_bps(result: CellResult) -> int:
    assert result.path is not None, "a cell with a gain is recorded"
    return result.path.rate_bps * result.cell.scenario.deployment.byte_scale


def _predicted(result: CellResult) -> float | None:
    """From the profile's own charges, so that it holds for every rate of the line.

    Args:
        result: of the slowest rate, where copies to the device hide behind the wire but for the
            last one.
    """
    scenario, path = result.cell.scenario, result.path
    assert path is not None, "a cell with a gain is recorded"
    directory = scenario.cache.directory
    away = isinstance(directory, CentralDirectory) and directory.site != scenario.workload.asker
    arms = result.arms
    saved_ns = arms["recompute"].spans_ns["prefill"] - arms["local-hit"].spans_ns["prefill"]
    saved_ns -= arms["remote-hit"].spans_ns["load"]
    kv_bytes = arms["remote-hit"].wire_bytes * scenario.deployment.byte_scale
    payload_bps = least_rate_bps(kv_bytes, saved_ns, path.rtt_ns, 2 if away else 1)
    return payload_bps * path.rate_bps / path.payload_rate_bps if payload_bps else None
