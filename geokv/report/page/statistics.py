"""How sure the numbers of a run are: where spread comes from, intervals, what differs or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geokv.report import words
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Bullets, Fold, Heading, Para, Table

_FOLD_FROM = 12
_SHARED = (
    "Requests of a drill share queues, caches and faults; intervals and tests count each as if it "
    "had come by itself. Another seed, or the same fault at another moment, may well lie outside."
)


def statistics_section(summary: dict[str, Any], run_dir: Path) -> Section | None:
    """None of a run that says nothing of it, as those of an older geokv do."""
    found = summary.get("statistics")
    if found is None:
        return None
    blocks: list[Block] = [Table(["", ""], _facts(found))]
    # A drill that is not swept has nothing to compare.
    if found.get("said"):
        blocks += [Heading("What differs, and what does not", 3), Bullets(found["said"])]
    blocks += [Heading("Time to first token, with intervals", 3), *_intervals(summary)]
    blocks += _seeds(summary) + _machine(summary)
    blocks += _differences(found, "kinds" if _is_drill(summary) else "arms")
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
    drill = _is_drill(summary)
    head = ["cell", "requests" if drill else "arm", "n", "mean ms", "interval", "median ms",
            "interval", "of %", "p99 ms", "interval", "slowest ms"]  # fmt: skip
    rows, tones = [], []
    for cell in summary["cells"]:
        for title, times in _of_a_drill(cell) if drill else _arms(cell):
            rows.append([_label(cell), title, *_row(times, cell["valid"])])
            tones.append("bad" if not cell["valid"] else "quiet" if cell.get("control") else "")
    said = f"All {len(rows)} cells and {'kinds of requests' if drill else 'arms'}"
    shown = _folded(said, Table(head, rows, numbers=True, tones=tones))
    return [*shown, Para(_SHARED, quiet=True)] if drill else shown


def _arms(cell: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, title in words.ARM_TITLES.items():
        if name in cell["arms"]:
            yield title, cell["arms"][name]


def _of_a_drill(cell: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that were answered, and each kind where the stream tells them apart."""
    yield "all answered", cell
    yield from ((name.replace("-", " "), kind) for name, kind in cell["kinds"].items())


def _row(times: dict[str, Any], valid: bool) -> list[str]:
    if not valid:
        return [str(times["n"]), *[words.VOID] * 8]
    confidence = (times["interval"] or {}).get("confidence")
    return [
        str(times["n"]),
        _ms(times["ttft_mean_ms"]),
        _ends(times["mean_interval"]),
        _ms(times["ttft_p50_ms"]),
        _ends(times["interval"]),
        words.NONE if confidence is None else f"{100 * confidence:.1f}",
        _ms(times["ttft_p99_ms"]),
        _ends(times["p99_interval"]),
        _ms(times["ttft_max_ms"]),
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
        "processor that others had more than 5 % of the time: it measured the machine. What else "
        "speaks against one is said beside the verdict."
    )
    table = Table(head, rows, numbers=True)
    return [Heading("Did the machine keep up?", 3), *_folded(f"All {len(rows)}", table), Para(said)]


def _differences(found: dict[str, Any], arms: str) -> list[Block]:
    rows = [
        [
            " | ".join(one["labels"]),
            " | ".join(arm.replace("_", " ") for arm in one["arms"]),
            " and ".join(map(str, one["samples"])),
            words.NONE if one["p"] is None else f"{one['p']:g}",
            words.NONE if one["p_adjusted"] is None else f"{one['p_adjusted']:g}",
            one["outcome"],
        ]
        for one in found.get("differences", ())
    ]
    if not rows:
        return []
    tests = found["tests"]
    unit = "seeds" if found["unit"] == "seed" else "requests"
    head = ["cells", arms, unit, "p", "p adjusted", "outcome"]
    said = (
        f"{tests['by']}, two-sided; p adjusted for all {tests['adjusted_for']} of them (Benjamini "
    )
    said += f"and Hochberg), a difference below {tests['alpha']:g}."
    return [Fold(f"Every comparison ({len(rows)})", [Table(head, rows), Para(said, quiet=True)])]


def _folded(said: str, table: Table) -> list[Block]:
    return [Fold(said, [table])] if len(table.rows) > _FOLD_FROM else [table]


def _is_drill(summary: dict[str, Any]) -> bool:
    return summary.get("kind") == "drill"


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
