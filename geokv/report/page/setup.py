"""What was built and asked: the map, the links as planned, the deployment and the load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geokv.lab.link_plan import LinkPlan
from geokv.lab.plan import compile_plan
from geokv.lab.topology import Topology
from geokv.report import words
from geokv.report.page.map import FEW_SITES, draw_map
from geokv.report.page.section import Section
from geokv.report.sheet.blocks import Block, Figure, Fold, Heading, Table
from geokv.report.sheet.setup import setup
from geokv.report.sheet.steps import seconds
from geokv.report.sheet.words import words_of
from geokv.scenario import Scenario, read_back
from geokv.scenario.workload import Document, OpenLoop, WorkingSet
from geokv.units import show_size

_FOLD_FROM = 12
_LINKS = [
    "link", "km", "kind", "line rate Gb/s", "one-way delay µs", "loss", "TCP", "protection ms",
]  # fmt: skip


def setup_section(summary: dict[str, Any], run_dir: Path) -> Section:
    """What was run: topology, deployment, cache and workload, as resolved."""
    scenario = read_back(run_dir / "scenario.yaml")
    topology = scenario.topology
    title = topology.title or topology.name
    blocks: list[Block] = [
        Figure(
            draw_map(topology, _roles(scenario), _lengths(scenario), title),
            "plots/topology.svg",
            f"{title}. Drawn by shape, not to scale; what a site does stands under its name.",
            _alt(topology),
            whole=len(topology.sites) <= FEW_SITES,
        )
    ]
    blocks += _links(scenario)
    if scenario.is_drill:
        blocks.append(setup(summary, scenario, words_of("en")))
    else:
        blocks.append(_facts(summary, scenario))
    return Section("setup", "Set-up", blocks)


def _alt(topology: Topology) -> str:
    """The map in words; of many links the table below it has the rest."""
    count = f"{len(topology.sites)} sites and {len(topology.links)} links"
    if len(topology.links) > _FOLD_FROM:
        return f"{count}, which the table below lists"
    links = (f"{name}, {link.km:g} km, {link.kind}" for name, link in topology.links.items())
    return f"{count}: {'; '.join(links)}"


def _roles(scenario: Scenario) -> dict[str, str]:
    """Site → what it does in this run."""
    workload = scenario.workload
    askers = workload.fetching if isinstance(workload, OpenLoop) else [workload.asker]
    providers = workload.prepared_at if isinstance(workload, OpenLoop) else [workload.provider]
    roles: dict[str, list[str]] = {site: [] for site in scenario.topology.sites}
    for site in askers:
        roles[site].append("asks")
    for site in providers:
        roles[site].append("has the prefix")
    holder = getattr(scenario.cache.directory, "site", None)
    if holder is not None:
        roles[holder].append("directory")
    return {site: ", ".join(said) for site, said in roles.items()}


def _lengths(scenario: Scenario) -> dict[str, str]:
    """Links whose km is swept → from where to where."""
    lengths = {}
    for axis in scenario.sweep:
        for path in axis.paths:
            if path.startswith("links.") and path.endswith(".km") and axis.path == path:
                values = [float(value) for value in (*axis.values, *axis.out_of_range)]
                span = f"{min(values):g}–{max(values):g}" if len(values) > 1 else f"{values[0]:g}"
                lengths[path.split(".")[1]] = f"{span} km"
    return lengths


def _links(scenario: Scenario) -> list[Block]:
    """As planned at full size; what is swept is shown as the file has it."""
    plan = compile_plan(scenario.topology, 1, scenario.seed)
    rows = [_link(link) for link in plan.links.values()]
    if not rows:
        return []
    table = Table(_LINKS, rows, numbers=True)
    said = "Links as planned, at full size"
    if scenario.sweep:
        said += ", before what a sweep changes"
    if len(rows) > _FOLD_FROM:
        return [Fold(f"{said} ({len(rows)})", [table])]
    return [Heading(said, 3), table]


def _link(link: LinkPlan) -> list[str]:
    protection = link.protection_ns
    return [
        link.link,
        f"{link.km:g}",
        link.kind,
        f"{link.rate_bps / 1e9:g}",
        f"{link.delay_ns / 1e3:g}",
        f"{100 * link.mean_loss:g} %",
        link.tcp.congestion,
        "never" if protection is None else f"{protection / 1e6:g}",
    ]


def _facts(summary: dict[str, Any], scenario: Scenario) -> Table:
    ran, deployment, cache = summary["ran"], scenario.deployment, scenario.cache
    workload = scenario.workload
    assert not isinstance(workload, OpenLoop), "of drills the sheet's set-up is shown"
    if isinstance(workload, Document):
        what = f"document {workload.text.file}, {ran['prefix_tokens']:,} tokens"
    else:
        what = words.prefixes(ran)
        if isinstance(workload, WorkingSet):
            what += f", asked for {workload.order}"
    warm = f", {workload.warmup} before them to warm up, not counted" if workload.warmup else ""
    substrate, directory = cache.substrate, cache.directory
    table = f"{directory.kind} directory"
    if (holder := getattr(directory, "site", None)) is not None:
        table += f" at {holder}"
    layered = f", {deployment.layer_groups} layer groups" if deployment.layer_groups > 1 else ""
    disk = show_size(deployment.disk_bytes) if deployment.disk_bytes else "none"
    overlap = ", computed on as layers arrive" if cache.overlap else ""
    rows = [
        [
            "shared",
            f"{what}, computed at {workload.provider}; question {ran['question_tokens']:,} tokens "
            f"at {workload.asker}, {ran['output_tokens']} tokens of answer",
        ],
        ["load", f"{ran['requests']} requests per cell and arm, one at a time{warm}"],
        ["arms", ", ".join(arm.replace("-", " ") for arm in ran["arms"])],
        ["swept", "; ".join(_axis(axis) for axis in scenario.sweep) or "nothing"],
        [
            "cache",
            f"{table}; {substrate.kind} with {substrate.streams} streams × {substrate.in_flight} "
            f"in flight, codec {substrate.codec}, {substrate.security}{overlap}",
        ],
        [
            "chunks",
            f"{deployment.chunk_tokens} tokens in blocks of {deployment.block_tokens}{layered}",
        ],
        [
            "tiers",
            f"device {show_size(deployment.device_bytes)}, DRAM "
            f"{show_size(deployment.dram_bytes)}, disk {disk}, of the deployment stood for",
        ],
        ["deadlines", f"{seconds(workload.deadline)} a request, {seconds(substrate.deadline)} a "
                      "fetch"],
    ]  # fmt: skip
    return Table(["", ""], rows)


def _axis(axis: Any) -> str:
    if axis.path is None:
        return f"{axis.name}: {', '.join(axis.variants)}"
    shown = ", ".join(map(str, axis.values))
    if axis.out_of_range:
        shown += f" (and {', '.join(map(str, axis.out_of_range))}, out of range)"
    return f"{axis.path}: {shown}"
