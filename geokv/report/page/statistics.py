"""How sure the numbers of a run are: where spread comes from, intervals, what differs or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.report import words
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Bullets, Fold, Heading, Para, Table

_FOLD_FROM = 12


def statistics_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """None of a run that says nothing of it, as those of an older geokv do."""
    found = summary.get("statistics")
    if found is None:
        return None
    blocks: list[Block] = [Table(["", ""], _facts(found))]
    if "differences" in found:
        if found["said"]:
            blocks += [Heading("What differs, and what does not", 3), Bullets(found["said"])]
        blocks += [Heading("Time to first token, with intervals", 3), *_intervals(summary)]
        blocks += _seeds(summary) + _machine(summary) + _differences(found)
    return Section("statistics", "How sure the numbers are", blocks)


def _facts(found: dict[str, Any]) -> list[list[str]]:
    p99, intervals, said = found["p99"], found["intervals"], found["spread"]["said"]
    return [
        ["Spread comes from", f"the {found['spread']['from']}. {said[0].upper()}{said[1:]}."],
        ["Warm-up requests", found["warmup"]["said"]],
        [
            "A p99 is shown",
            f"from {p99['least']} samples on, its interval from {p99['least_for_interval']} on; "
            "with fewer it would be the largest sample under another name",
        ],
        [
            "Intervals",
            "of 95 %, Student's over the seeds"
            if found["unit"] == "seed"
            else f"of 95 %, by {intervals['resamples']:,} resamples; of a mean from "
            f"{intervals['mean_from']} samples on; of a median with the confidence beside it",
        ],
    ]


def _intervals(summary: dict[str, Any]) -> list[Block]:
    head = ["cell", "arm", "n", "mean ms", "interval", "median ms", "interval", "of %", "p99 ms",
            "interval", "slowest ms"]  # fmt: skip
    rows, tones = [], []
    for cell in summary["cells"]:
        for name, title in words.ARM_TITLES.items():
            if name in cell["arms"]:
                rows.append([_label(cell), title, *_row(cell["arms"][name], cell["valid"])])
                tones.append("" if cell["valid"] else "bad")
    return _folded(f"All {len(rows)} cells and arms", Table(head, rows, numbers=True, tones=tones))


def _row(arm: dict[str, Any], valid: bool) -> list[str]:
    if not valid:
        return [str(arm["n"]), *[words.VOID] * 8]
    confidence = (arm["interval"] or {}).get("confidence")
    return [
        str(arm["n"]),
        _ms(arm["ttft_mean_ms"]),
        _ends(arm["mean_interval"]),
        _ms(arm["ttft_p50_ms"]),
        _ends(arm["interval"]),
        words.NONE if confidence is None else f"{100 * confidence:.1f}",
        _ms(arm["ttft_p99_ms"]),
        _ends(arm["p99_interval"]),
        _ms(arm["ttft_max_ms"]),
    ]


def _seeds(summary: dict[str, Any]) -> list[Block]:
    """What each seed came to, where there are several."""
    seeds = summary["statistics"]["seeds"]
    if len(seeds) < 2:
        return []
    rows = [
        [_label(cell), title, *(_ms(one["ttft_p50_ms"].get(name)) for one in cell["by_seed"])]
        for cell in summary["cells"]
        for name, title in words.ARM_TITLES.items()
        if name in cell["arms"]
    ]
    table = Table(["cell", "arm", *(f"seed {seed}" for seed in seeds)], rows, numbers=True)
    return [
        Heading("Median of each seed, ms", 3), *_folded(f"All {len(rows)} cells and arms", table),
    ]  # fmt: skip


def _machine(summary: dict[str, Any]) -> list[Block]:
    """What was counted of the machine, in real time."""
    cells = [cell for cell in summary["cells"] if cell.get("machine")]
    if not cells:
        return []
    head = ["cell", "wake-ups", "over 1 ms late", "the latest, ms", "waited for a processor, ms",
            "others had it, ms", "cost of the time at most"]  # fmt: skip
    rows = [
        [
            _label(cell),
            _count(cell["machine"]["timers"]),
            _count(cell["machine"]["timers_late"]),
            words.number(cell["machine"]["timer_worst_ms"], 1),
            words.number(cell["machine"]["run_queue_wait_ms"], 1),
            words.number(cell["machine"].get("others_ms"), 1),
            words.percent(cell["machine"]["run_queue_share"]),
        ]
        for cell in cells
    ]
    said = (
        "A cell is void where more than 5 % of the wake-ups came late, or the run waited for a "
        "processor that others had more than 5 % of the time: it measured the machine."
    )
    table = Table(head, rows, numbers=True)
    return [Heading("Did the machine keep up?", 3), *_folded(f"All {len(rows)}", table), Para(said)]


def _differences(found: dict[str, Any]) -> list[Block]:
    rows = [
        [
            " | ".join(one["labels"]),
            " | ".join(arm.replace("_", " ") for arm in one["arms"]),
            " and ".join(map(str, one["samples"])),
            words.NONE if one["p"] is None else f"{one['p']:g}",
            words.NONE if one["p_adjusted"] is None else f"{one['p_adjusted']:g}",
            one["outcome"],
        ]
        for one in found["differences"]
    ]
    if not rows:
        return []
    tests = found["tests"]
    unit = "seeds" if found["unit"] == "seed" else "requests"
    head = ["cells", "arms", unit, "p", "p adjusted", "outcome"]
    said = (
        f"{tests['by']}, two-sided; p adjusted for all {tests['adjusted_for']} of them (Benjamini "
    )
    said += f"and Hochberg), a difference below {tests['alpha']:g}."
    return [Fold(f"Every comparison ({len(rows)})", [Table(head, rows), Para(said, quiet=True)])]


def _folded(said: str, table: Table) -> list[Block]:
    return [Fold(said, [table])] if len(table.rows) > _FOLD_FROM else [table]


def _label(cell: dict[str, Any]) -> str:
    return f"{cell['label']}{' *' if cell['out_of_range'] else ''}"


def _ends(interval: dict[str, Any] | None) -> str:
    if interval is None:
        return words.NONE
    return f"{_ms(interval['low_ms'])} – {_ms(interval['high_ms'])}"


def _ms(value: float | None) -> str:
    return words.number(value, 3)


def _count(value: int | None) -> str:
    return words.NONE if value is None else f"{value:,}"
