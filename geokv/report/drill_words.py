"""Titles and rows of a drill's two tables, as text for every format for people."""

from __future__ import annotations

from typing import Any

from geokv.report import words

TTFTS = ("ttft_p50_ms", "ttft_p99_ms", "ttft_max_ms")
SPANS = ("detected", "rerouted", "first_good", "hit_rate_back", "ttft_back")


def header(summary: dict[str, Any]) -> list[str]:
    """What ran and what it stands for, in a few lines."""
    ran = summary["ran"]
    scale = ran["byte_scale"]
    size = "full size" if scale == 1 else f"bytes and rates ÷ {scale}"
    askers = ", ".join(ran["askers"])
    what = (
        f"{ran['tenants'] * ran['prefixes']} prefixes of {ran['prefix_tokens']:,} tokens at "
        f"{', '.join(ran['providers'])}"
        if "prefixes" in ran
        else f"replayed from {ran['trace']}, prompts of {ran['prompt_tokens']:,} tokens (median)"
    )
    return [
        f"{ran['model']} ran, stands for {ran['stands_for']} · GPU time {ran['compute']} · "
        f"S = {scale}: {size}",
        f"{ran['clock']} clock · kernel {ran['kernel']} · seed {ran['seed']} · "
        f"{ran['requests']} requests at {ran['rate_per_s']:g}/s to {askers} · "
        f"{what}",
    ]


def wrong_in(cell: dict[str, Any]) -> int:
    """What every table, card and list of seeds calls wrong: requests that were answered wrongly,
    and fetches whose bytes were used and were not those computed, or led to such an answer
    (docs/measures.md)."""
    return int(cell["fates"]["requests"]["wrong"] + cell["fates"]["fetches"]["wrong"])


def cell_titles() -> list[str]:
    """Titles of the table of cells, in the order of its columns."""
    return [
        "cell",
        "verdict",
        "asked",
        "answered",
        "TTFT p50 ms",
        "p99 ms",
        "max ms",
        "hit rate",
        "fetched",
        "lost",
        "wrong",
        "hung",
    ]


def cell_row(cell: dict[str, Any]) -> list[str]:
    """As ``cell_titles``. A cell whose links were off shows no times (INV-7)."""
    fetches, requests = cell["fates"]["fetches"], cell["fates"]["requests"]
    lost = fetches["retried"] + fetches["recomputed"] + fetches["failed"]
    times = [words.ms(cell[name]) for name in TTFTS]
    return [
        cell["label"] or "-",
        cell["verdict"],
        str(cell["requests"]),
        str(cell["answered"]),
        *(times if cell["valid"] else [words.VOID] * len(TTFTS)),
        words.number(cell["hit_rate"], 2),
        str(fetches["served"] + fetches["unused"] + fetches["wrong"]),
        str(lost),
        str(wrong_in(cell)),
        str(requests["unanswered"]),
    ]


def fault_titles() -> list[str]:
    """Titles of the table of faults, in the order of its columns."""
    return [
        "cell",
        "fault",
        "of",
        "at ms",
        "healed ms",
        *(f"{span.replace('_', ' ')} ms" for span in SPANS),
        "lost",
    ]


def fault_rows(summary: dict[str, Any]) -> list[list[str]]:
    """As ``fault_titles``; a dash is what never came."""
    rows = []
    for cell in summary["cells"]:
        for fault in cell["faults"]:
            recovery = fault["recovery"] or {}
            spans = [words.ms((recovery.get(span) or {}).get("ms")) for span in SPANS]
            rows.append(
                [
                    cell["label"] or "-",
                    fault["name"] + (" (by hand)" if fault.get("by_hand") else ""),
                    fault["target"],
                    words.ms(fault["took_effect_ms"]),
                    words.ms(fault["healed_ms"]),
                    *spans,
                    str(recovery.get("fetches_lost", words.NONE)),
                ]
            )
    return rows
