"""``table.md``: the table, the judged lines and the fine print, readable as it is."""

from __future__ import annotations

from typing import Any

from geokv.report import words


def to_markdown(summary: dict[str, Any]) -> str:
    """The report of one run as GitHub-flavoured Markdown."""
    scenario = summary["scenario"]
    lines = [f"# {scenario['title']}", "", f"*{scenario['question']}*", ""]
    lines += [f"{line}  " for line in words.header(summary)]
    lines += ["", *_table(summary), ""]
    if any(cell["out_of_range"] for cell in summary["cells"]):
        lines += ["\\* out of range: shown for comparison, no limit applies.", ""]
    lines += [f"## Verdict: {summary['verdict']}", ""]
    lines += [f"- {reason}" for reason in summary["reasons"]]
    lines += [""] if summary["reasons"] else []
    lines += ["| | expectation | |", "| --- | --- | --- |"]
    for item in summary["expectations"]:
        lines.append(f"| {words.MARKS[item['ok']]} | {item['name']} | {_cell(item['said'])} |")
    if summary["warnings"]:
        lines += ["", "## Warnings", "", *(f"- {said}" for said in summary["warnings"])]
    lines += ["", "## Notes", "", *(f"- {said}" for said in summary["notes"])]
    lines += ["", "Constants of the energy proxy:", ""]
    lines += ["| constant | value | range | source |", "| --- | ---: | --- | --- |"]
    for name, data in summary["energy"]["constants"].items():
        lines.append(
            f"| {name} | {data['value']:g} | {data['low']:g}–{data['high']:g} "
            f"| {_cell(data['source'])} |"
        )
    return "\n".join(lines) + "\n"


def _table(summary: dict[str, Any]) -> list[str]:
    arms = [arm for arm in words.ARM_TITLES if arm.replace("_", "-") in summary["ran"]["arms"]]
    others = words.other_settings(summary)
    titles = [*others, "km", "RTT asked ms", "RTT measured ms", "goodput ratio"]
    titles += [f"{words.ARM_TITLES[arm]} TTFT p50 ms" for arm in arms]
    titles += ["gain", "change vs 0 km", "bound ms", "ratio to bound", "wrong", "GiB moved"]
    titles += [f"{words.ARM_TITLES[arm]} energy proxy J" for arm in arms]
    titles += ["valid"]
    rows = [
        [*(str(cell["settings"].get(path, words.NONE)) for path in others), *_row(cell, arms)]
        for cell in summary["cells"]
    ]
    return [
        "| " + " | ".join(titles) + " |",
        "|" + " ---: |" * len(titles),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def _row(cell: dict[str, Any], arms: list[str]) -> list[str]:
    remote = cell["arms"].get("remote_hit", {})
    return [
        words.km(cell).replace("*", "\\*"),
        words.number(cell["rtt_asked_ms"], 3),
        words.number(cell["rtt_measured_ms"], 3),
        words.number(cell["goodput_ratio"], 3),
        *(words.ttft(cell, arm) for arm in arms),
        words.percent(cell["gain"]),
        words.change(cell),
        words.ms(remote.get("bound_ms")),
        words.ratio(remote.get("ratio_to_bound")),
        words.wrong(cell),
        words.gib(cell),
        *(words.joules(cell, arm) for arm in arms),
        "yes" if cell["valid"] else "**no**",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
