"""The set-up of a drill as a table of two columns."""

from __future__ import annotations

from typing import Any

from geokv.report.sheet.blocks import Table
from geokv.report.sheet.steps import seconds
from geokv.report.sheet.words import Words
from geokv.scenario import Scenario
from geokv.scenario.workload import Stream


def setup(summary: dict[str, Any], scenario: Scenario, words: Words) -> Table:
    """What ran, on what, asked by whom."""
    text, ran, stream = words.text, summary["ran"], scenario.workload
    assert isinstance(stream, Stream), "drills are streams"
    links = "; ".join(
        text["link"].format(link=name, km=f"{link.km:g}", kind=link.kind)
        for name, link in scenario.topology.links.items()
    )
    cold = text["cold_forget" if stream.cold == "forget" else "cold_keep"]
    rows = [
        [text["topology"], f"{', '.join(scenario.topology.sites)} — {links}"],
        [
            text["load"],
            text["load_said"].format(
                requests=stream.requests,
                rate=f"{stream.rate:g}",
                arrivals=text[stream.arrivals],
                askers=", ".join(stream.askers),
                deadline=seconds(stream.deadline),
            ),
        ],
        [
            text["content"],
            text["content_said"].format(
                count=stream.tenants * stream.prefixes,
                tokens=f"{stream.prefix_tokens:,}",
                providers=", ".join(stream.providers),
                question=stream.question_tokens,
                chunk=ran["chunk_tokens"],
            ),
        ],
        [text["caches"], cold],
        [
            text["stands_for"],
            text["stands_for_said"].format(
                model=ran["model"],
                stands_for=ran["stands_for"],
                compute=ran["compute"],
                scale=ran["byte_scale"],
            ),
        ],
        [
            text["clock"],
            text["clock_said"].format(clock=ran["clock"], kernel=ran["kernel"], seed=ran["seed"]),
        ],
    ]
    return Table(["", ""], rows)
