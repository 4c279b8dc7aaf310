"""The set-up of a drill as a table of two columns."""

from __future__ import annotations

from typing import Any

from geokv.report.sheet.blocks import Table
from geokv.report.sheet.steps import seconds
from geokv.report.sheet.words import Words
from geokv.scenario import Scenario
from geokv.scenario.workload import OpenLoop, Stream


def setup(summary: dict[str, Any], scenario: Scenario, words: Words) -> Table:
    """What ran, on what, asked by whom."""
    text, ran, workload = words.text, summary["ran"], scenario.workload
    assert isinstance(workload, OpenLoop), "drills are open loop"
    links = "; ".join(
        text["link"].format(link=name, km=f"{link.km:g}", kind=link.kind)
        for name, link in scenario.topology.links.items()
    )
    cold = text["cold_forget" if ran["cold"] == "forget" else "cold_keep"]
    rows = [
        [text["topology"], f"{', '.join(scenario.topology.sites)} — {links}"],
        [
            text["load"],
            text["load_said"].format(
                requests=ran["requests"],
                rate=f"{ran['rate_per_s']:g}",
                arrivals=text[workload.arrivals if isinstance(workload, Stream) else "as_recorded"],
                askers=", ".join(ran["askers"]),
                deadline=seconds(workload.deadline),
            ),
        ],
        [
            text["content"],
            text["content_said"].format(
                count=ran["tenants"] * ran["prefixes"],
                tokens=f"{ran['prefix_tokens']:,}",
                providers=", ".join(ran["providers"]),
                question=ran["question_tokens"],
                chunk=ran["chunk_tokens"],
            )
            if isinstance(workload, Stream)
            else text["replayed"].format(
                file=ran["trace"], tokens=f"{ran['prompt_tokens']:,}", chunk=ran["chunk_tokens"]
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
