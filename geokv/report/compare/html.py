"""A comparison as one HTML file that needs nothing else."""

from __future__ import annotations

from functools import partial

from geokv.report.compare.comparison import Comparison
from geokv.report.compare.plot import draw
from geokv.report.compare.rows import ABOUT, TITLES, header, row
from geokv.report.page.chart import chart
from geokv.report.page.head import Head
from geokv.report.page.html import page_html
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Bullets, Cards, Para, Table

_TONES = {"void": "bad", "missing": "bad", "too few": "quiet"}


def comparison_html(comparison: Comparison) -> str:
    """The page, self-contained: styles and drawings inside, no script, nothing fetched."""
    sections = [_section(comparison, number) for number in range(len(comparison.others))]
    return page_html(_head(comparison), [*sections, _setups(comparison)])


def _head(comparison: Comparison) -> Head:
    base, others = comparison.base, comparison.others
    forced = comparison.forced
    said = (
        "These runs were not set up alike: what differs may be that."
        if forced
        else ("These runs were set up alike.")
    )
    counts = [(outcome, count) for one in others for outcome, count in one.counts.items()]
    cards = [(outcome, str(sum(n for o, n in counts if o == outcome))) for outcome, _ in counts]
    return Head(
        kicker=f"geokv compare · {base.scenario.name}",
        title=base.scenario.title,
        question=f"Does the first token come sooner or later than in {base.folder.name}?",
        verdict="forced" if forced else "compared",
        sign="!" if forced else "≈",
        verdict_said=said,
        reasons=[
            f"run {n}: {found.said}" for n, one in enumerate(others, start=1) for found in one.setup
        ],
        headline=" ".join(f"Run {n}: {one.said}." for n, one in enumerate(others, start=1)),
        cards=Cards([(name, value, False) for name, value in dict(cards).items()]),
        facts=header(comparison),
        footer=f"scenario {base.scenario.hash[:8]}",
    )


def _section(comparison: Comparison, number: int) -> Section:
    one = comparison.others[number]
    blocks: list[Block] = [Para(f"{one.said[0].upper()}{one.said[1:]}.")]
    alt = "Ratio of the TTFT to the base's with its interval, a line per cell and arm"
    blocks += chart(partial(draw, one), f"compare-{number + 1}", alt)
    rows, tones = [row(pair) for pair in one.pairs], [_TONES.get(p.outcome, "") for p in one.pairs]
    blocks += [Table(TITLES, rows, tones=tones), Para(ABOUT, quiet=True)]
    # The link that skips to the results leads to the first.
    place = "results" if number == 0 else f"run-{number + 1}"
    return Section(place, f"Run {number + 1}: {one.run.folder.name}", blocks)


def _setups(comparison: Comparison) -> Section:
    rows = [
        [f"run {number}", "version of" if found in one.versions else "set-up", found.path,
         *found.values]
        for number, one in enumerate(comparison.others, start=1)
        for found in [*one.setup, *one.versions]
    ]  # fmt: skip
    blocks: list[Block] = [Bullets(header(comparison))]
    if rows:
        blocks.append(Table(["run", "what", "path", "base", "this"], rows))
    else:
        blocks.append(Para("Nothing differs: scenario, seeds, clock, kernel, profile, versions."))
    return Section("setup", "Set-ups", blocks)
