"""Two and more runs, compared with the first of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from geokv.errors import ConfigError, RunError
from geokv.measure.comparing.pairs import Outcome, Pair, compared
from geokv.measure.comparing.sampled import SampledRun, sampled
from geokv.report.compare.setup import Differs, differing, versions

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True)
class Against:
    """One run against the base.

    Attributes:
        setup: what differs in their set-ups; empty unless the comparison was forced.
    """

    run: SampledRun
    setup: list[Differs]
    versions: list[Differs]
    pairs: list[Pair]

    @property
    def counts(self) -> dict[str, int]:
        """Outcome → how many pairs came to it, those that none did left out."""
        found = Counter(pair.outcome for pair in self.pairs)
        return {outcome: found[outcome] for outcome in OUTCOMES if found[outcome]}

    @property
    def said(self) -> str:
        """What it comes to, in a sentence."""
        counts = ", ".join(
            f"{count} with {outcome}" if outcome.startswith("no ") else f"{count} {outcome}"
            for outcome, count in self.counts.items()
        )
        tested = [pair for pair in self.pairs if pair.outcome in ("slower", "faster")]
        if not tested:
            if self.counts.keys() <= {"too few", "void", "missing"}:
                return f"nothing can be said of the TTFT: {counts}"
            whole = len(self.counts) == 1
            shown = f"all {len(self.pairs)} compared" if whole else counts
            return f"no significant difference of any TTFT ({shown})"
        worst = max(tested, key=lambda pair: abs(_log(pair)))
        return (
            f"of {len(self.pairs)} TTFTs {counts}; most of all {worst.arm} at {worst.label}: "
            f"{worst.ratio:.4g} times"
        )


@dataclass(frozen=True)
class Comparison:
    """The first run, and each other one against it."""

    base: SampledRun
    others: list[Against]

    @property
    def forced(self) -> bool:
        """Whether runs of different set-ups are compared all the same."""
        return any(one.setup for one in self.others)


def compare_runs(folders: Sequence[Path], force: bool = False) -> Comparison:
    """Compare finished runs with the first.

    Args:
        force: compare different set-ups too; everything shown says so.

    Raises:
        ConfigError: fewer than two folders, one twice, one that holds no finished run or broken
            records, or set-ups that differ.
    """
    if len(folders) < 2:
        raise ConfigError("compare: needs two run folders at least", "geokv compare RUN RUN")
    twice = [folder for folder in folders if folders.count(folder) > 1]
    if twice:
        raise ConfigError(f"compare: {twice[0]} is named twice")
    try:
        base, *rest = (sampled(folder) for folder in folders)
    except RunError as error:
        # Whoever compares chose the folders: another is what helps.
        raise ConfigError(error.message, error.hint) from None
    others = []
    for run in rest:
        setup = differing(base, run)
        if setup and not force:
            raise ConfigError(_refusal(base, run, setup), "--force compares them all the same")
        others.append(Against(run, setup, versions(base, run), compared(base, run)))
    return Comparison(base, others)


def _refusal(base: SampledRun, run: SampledRun, setup: list[Differs]) -> str:
    more = f" (and {len(setup) - 1} more)" if len(setup) > 1 else ""
    return f"{base.folder} and {run.folder} are different set-ups: {setup[0].said}{more}"


def _log(pair: Pair) -> float:
    ratio = pair.ratio or 1.0
    return ratio if ratio > 1 else 1 / ratio
