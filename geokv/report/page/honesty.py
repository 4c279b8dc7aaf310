"""What the numbers of a run are, and what they are not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from geokv.report import words
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Fold, Para, Table
from geokv.scenario import Scenario, read_back

_CLOCKS = {
    "virtual": "virtual: inside the VM computing and system calls take no time and waiting is "
    "skipped, so links and charged times are exact and the same seed gives the same table. What "
    "spread there is comes from the workload, not from a machine; what software costs on a CPU "
    "(locks, copies, the kernel's own work) is not in these times.",
    "wall": "wall: real time of the machine that ran it. Spread comes from that machine as well "
    "as from the workload, and a busy machine can lengthen any time.",
}


def honesty_section(summary: dict[str, Any], run_dir: Path) -> Section:
    """Which parts were real, charged, emulated or made up, and what S distorts."""
    scenario, ran = read_back(run_dir / "scenario.yaml"), summary["ran"]
    profile = summary["provenance"]["profile"]
    rows = [
        ["what ran", _ran(scenario, ran)],
        ["stands for", f"{ran['stands_for']}: {profile.get('model')} on {profile.get('device')}"],
        ["clock", _CLOCKS.get(ran["clock"], ran["clock"])],
        ["kernel", f"{ran['kernel']}; one machine carries all sites, a namespace each"],
        ["real", _real(scenario)],
        ["charged", _charged(scenario, profile)],
        [
            "emulated",
            "the fibre, by tc/netem in a namespace between the sites: 5 µs per km times detour, "
            "equipment, rate, queue, and loss where the plan asks for it",
        ],
        ["byte scale", _scale(int(ran["byte_scale"]))],
        ["energy", _energy(summary)],
        ["repeatable", _repeatable(ran)],
    ]
    blocks: list[Block] = [Table(["", ""], rows)]
    if ran["compute"] == "charged":
        blocks += _fit(profile)
    return Section("honesty", "How far to trust these numbers", blocks)


def _ran(scenario: Scenario, ran: dict[str, Any]) -> str:
    if scenario.deployment.content == "synthetic":
        return (
            "no model: tokens and KV are derived from the prompt, byte for byte checkable. Answers "
            "prove that the right KV was used, not that a model would have said so"
        )
    return (
        f"{ran['model']} in torch, {scenario.deployment.dtype}: every token and logit is computed "
        "from the KV that was found or fetched. It is not the model the run stands for, and says "
        "nothing of that one's answers"
    )


def _real(scenario: Scenario) -> str:
    blocks = "the paged pool and prefix tree, every byte of KV that is fetched and checked"
    engine = {"tcp": "Linux's TCP/IP", "nixl": "NIXL", "mooncake": "Mooncake's transfer engine"}
    return f"{engine[scenario.cache.substrate.kind]}, HTTP, {blocks}, the directory's messages"


def _charged(scenario: Scenario, profile: dict[str, Any]) -> str:
    if scenario.deployment.compute == "real":
        return "nothing: computing took what it took"
    how = {
        "fitted": "fitted to public measurements of this pair; its error is below",
        "roofline": "composed from data sheets, not measured: a roofline",
    }
    kind = how.get(str(profile.get("kind")), "see its sources below")
    copies = (profile.get("copy_cost") or {}).get("source", "no source given")
    return (
        f"prefill and decode by the GPU profile {scenario.deployment.stands_for}, {kind}; copies "
        f"between host and device ({copies})"
    )


def _scale(scale: int) -> str:
    if scale == 1:
        return "S = 1: full size, nothing is divided"
    rounds = f"{math.log2(scale):.1f}".removesuffix(".0")
    return (
        f"S = {scale}: link rates and bytes on the wire are divided by {scale}, times are not. "
        f"What counts packets is distorted: a TCP window has {scale} times fewer of them, slow "
        f"start takes some {rounds} fewer rounds, and one packet, lost or late, weighs {scale} "
        "times as much. Headers of records, lookups and token ids are not divided. "
        "--set deployment.byte_scale=1 runs at full size"
    )


def _energy(summary: dict[str, Any]) -> str:
    said = "a proxy: published watts times phases"
    grade = summary.get("energy", {}).get("grade", "constants")
    if grade == "constants":
        return f"{said}; nothing was metered"
    return f"{said}; beside it stands what was metered on the machine that ran ({grade})"


def _repeatable(ran: dict[str, Any]) -> str:
    if ran["clock"] == "virtual":
        return (
            f"{words.seeds(ran)}: the same scenario and seed give the same table, byte for byte, "
            "on one installation; other Python packages can move a time by about a µs"
        )
    return f"{words.seeds(ran)} repeats the workload; times are those of the machine"


def _fit(profile: dict[str, Any]) -> list[Block]:
    """How far the profile is from what it was fitted to, and where that was published."""
    errors = profile.get("fit_error") or {}
    blocks: list[Block] = []
    if errors:
        rows = [
            [name, f"{one['points']:,}", words.percent(one["median"]), words.percent(one["p95"])]
            for name, one in errors.items()
        ]
        head = ["held against", "points", "median error", "95th percentile"]
        blocks.append(Table(head, rows, numbers=True, caption="Error of the GPU profile"))
    if sources := profile.get("sources"):
        blocks.append(Fold("Sources of the GPU profile", [Para(one) for one in sources]))
    return blocks
