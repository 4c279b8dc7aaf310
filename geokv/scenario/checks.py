"""What no single field can know: checks across the parts of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geokv.errors import ConfigError
from geokv.scenario.checks_drill import drill_problems
from geokv.scenario.checks_energy import energy_problems
from geokv.scenario.checks_sweep import repeated, sweep_problems
from geokv.scenario.directory import CentralDirectory
from geokv.scenario.paths import suggest
from geokv.scenario.seeds import seed_problems
from geokv.scenario.sharing import sharing_problems
from geokv.scenario.texts import KEYS
from geokv.scenario.workload import Document, OpenLoop, Trace, WorkingSet

if TYPE_CHECKING:
    from geokv.scenario.model import Scenario

NEEDS_ARMS = {
    "answers_equal": ("recompute",),
    "first_logits_within": ("recompute",),
    "ratio_to_bound_at_most": ("local-hit", "remote-hit"),
    "gain_change_percent_at_most": ("recompute", "remote-hit"),
    "controls_differ": ("recompute",),
    "remote_used": ("remote-hit",),
    "closed_form_within": ("remote-hit",),
    "overlap_within": ("local-hit", "remote-hit"),
    "break_even_within": ("recompute", "local-hit", "remote-hit"),
    "changes": ("remote-hit",),
    "energy": ("recompute", "local-hit", "remote-hit"),
}


def problems(scenario: Scenario) -> list[str]:
    """Every contradiction, as ``path: what is wrong``; empty when there is none."""
    found = [
        *_sites(scenario),
        *_sizes(scenario),
        *_tokens(scenario),
        *_clock(scenario),
        *_content(scenario),
        *sharing_problems(scenario),
    ]
    found += [*_arms(scenario), *sweep_problems(scenario)]
    found += [*seed_problems(scenario), *energy_problems(scenario), *drill_problems(scenario)]
    if not found:
        try:
            scenario.cells()
        except ConfigError as error:
            found.append(error.message)
    return found


def untested(scenario: Scenario) -> list[str]:
    """Expectations about a distance that no cell has."""
    in_range = sorted({cell.km for cell in scenario.cells() if not cell.out_of_range})
    shown = ", ".join(f"{km:g}" for km in in_range)
    found = []
    ratio = scenario.expect.ratio_to_bound_at_most
    if ratio and ratio.at_km not in in_range:
        found.append(
            f"expect.ratio_to_bound_at_most.at_km: no cell in range is at {ratio.at_km:g} km "
            f"(cells: {shown})"
        )
    if scenario.expect.gain_change_percent_at_most:
        if 0 not in in_range:
            found.append(
                "expect.gain_change_percent_at_most: compares with 0 km, and no cell is there "
                f"(cells: {shown})"
            )
        limit = scenario.expect.gain_change_percent_at_most.up_to_km
        if not any(0 < km <= limit for km in in_range):
            found.append(
                f"expect.gain_change_percent_at_most.up_to_km: no cell lies between 0 and "
                f"{limit:g} km (cells: {shown})"
            )
    return found + _untested_changes(scenario)


def _untested_changes(scenario: Scenario) -> list[str]:
    found = []
    values = {axis.title: [point.shown for point in axis.points()] for axis in scenario.sweep}
    for number, change in enumerate(scenario.expect.changes):
        place = f"expect.changes.{number}"
        if change.along not in values:
            found.append(
                f"{place}.along: no axis is called {change.along}"
                f"{suggest(change.along, list(values))}"
            )
            continue
        asked = [("start", change.along, change.start), ("end", change.along, change.end)]
        asked += [("where", axis, value) for axis, value in change.where.items()]
        for key, axis, value in asked:
            if value not in values.get(axis, []):
                shown = ", ".join(str(one) for one in values.get(axis, []))
                said = f"no cell has {axis} {value} (values: {shown or 'none'})"
                found.append(f"{place}.{key}: {said}")
    return found


def _sites(scenario: Scenario) -> list[str]:
    named = {}
    # A stream may have several of each; see checks_drill.
    one_of_each = not isinstance(scenario.workload, OpenLoop)
    if one_of_each:
        named["workload.provider"] = scenario.workload.provider
        named["workload.asker"] = scenario.workload.asker
    directory = scenario.cache.directory
    if isinstance(directory, CentralDirectory):
        named["cache.directory.site"] = directory.site
    sites = list(scenario.topology.sites)
    found = _sharing(scenario) + [
        f"{path}: unknown site {site!r} (known: {', '.join(sites)}){suggest(site, sites)}"
        for path, site in named.items()
        if site not in sites
    ]
    if one_of_each and scenario.workload.provider == scenario.workload.asker:
        found.append(
            f"workload.asker: must differ from workload.provider, both are "
            f"{scenario.workload.asker!r}"
        )
    return found


def _sharing(scenario: Scenario) -> list[str]:
    """What one part of the cache needs of another."""
    cache = scenario.cache
    found = []
    if cache.purge is not None and cache.membership is None:
        found.append("cache.purge: needs cache.membership, whose beats bound it")
    if cache.purge is not None and not isinstance(cache.directory, CentralDirectory):
        found.append("cache.purge: needs cache.directory.kind central, whose site numbers purges")
    if cache.purge is not None and cache.membership is not None:
        least = cache.membership.period * (cache.membership.misses + 1)
        if cache.purge.bound < least:
            found.append(
                f"cache.purge.bound: must be ≥ membership.period x (misses + 1), {least:g} s, "
                f"got {cache.purge.bound:g} s"
            )
    return found


def _sizes(scenario: Scenario) -> list[str]:
    sites = list(scenario.topology.sites)
    return [
        f"deployment.sites.{site}: unknown site (known: {', '.join(sites)}){suggest(site, sites)}"
        for site in scenario.deployment.sites
        if site not in sites
    ]


def _tokens(scenario: Scenario) -> list[str]:
    deployment, workload = scenario.deployment, scenario.workload
    found = []
    for site in scenario.topology.sites:
        own = deployment.at(site)
        block = f"deployment.{deployment.place('block_tokens', site)}"
        chunk = f"deployment.{deployment.place('chunk_tokens', site)}"
        if own.chunk_tokens % own.block_tokens:
            found.append(
                f"{chunk}: must be a multiple of {block} ({own.block_tokens}), "
                f"got {own.chunk_tokens}"
            )
        elif (
            not isinstance(workload, Document | Trace) and workload.prefix_tokens % own.chunk_tokens
        ):
            found.append(
                f"workload.prefix_tokens: must be a multiple of {chunk} "
                f"({own.chunk_tokens}), got {workload.prefix_tokens}"
            )
        if (
            not isinstance(workload, Document | Trace)
            and workload.question_tokens < own.block_tokens
        ):
            found.append(
                "workload.question_tokens: must fill at least one block of "
                f"{own.block_tokens} tokens, got {workload.question_tokens}"
            )
        if own.block_tokens % deployment.chain_tokens:
            found.append(
                f"{block}: must be a multiple of deployment.key_tokens "
                f"({deployment.chain_tokens}), got {own.block_tokens}"
            )
    if isinstance(workload, Document):
        found += _document(workload, list(scenario.arms))
    return list(dict.fromkeys(found))


def _document(workload: Document, arms: list[str]) -> list[str]:
    """How many tokens the texts have only the model's tokenizer knows: see preflight."""
    named = {key: getattr(workload, key) for key in KEYS}
    found = [
        f"workload.{key}.content: is empty" for key, of in named.items() if of and not of.words
    ]
    if "control-foreign" in arms and workload.foreign is None:
        found.append("workload.foreign: is required by arm control-foreign")
    for question in repeated(workload.questions):
        found.append(f"workload.questions: {question!r} is asked twice")
    return found


def _clock(scenario: Scenario) -> list[str]:
    if scenario.clock == "virtual" and scenario.deployment.compute == "real":
        return [
            "deployment.compute: real computing takes no time on the virtual clock; "
            "use charged, or clock: wall"
        ]
    return []


def _content(scenario: Scenario) -> list[str]:
    deployment = scenario.deployment
    if deployment.content == "model":
        if deployment.max_tokens is None:
            return []
        return [
            f"deployment.max_tokens: {deployment.model} takes what it takes; leave it out, or "
            "use content: synthetic"
        ]
    found = []
    if deployment.compute == "real":
        found.append(
            "deployment.content: synthetic content computes nothing whose time could be "
            "measured; use compute: charged, or content: model"
        )
    typed = {
        deployment.place("dtype", site): deployment.at(site).dtype
        for site in scenario.topology.sites
    }
    found += [
        f"deployment.{place}: synthetic content is bytes and no {dtype}; leave dtype out, or use "
        "content: model"
        for place, dtype in typed.items()
        if dtype != "float32"
    ]
    return found


def _arms(scenario: Scenario) -> list[str]:
    found = []
    arms = list(scenario.arms)
    twice = repeated(arms)
    for arm in dict.fromkeys(arms):
        if arm in twice:
            found.append(f"arms: {arm} is listed {twice[arm]} times")
        if arm.startswith("control-") and isinstance(scenario.workload, WorkingSet):
            found.append(f"arms: {arm} has no single prefix to plant in a working set")
    for name, needed in NEEDS_ARMS.items():
        value = getattr(scenario.expect, name)
        missing = [arm for arm in needed if arm not in arms]
        if value not in (None, False, []) and missing:
            found.append(f"expect.{name}: needs arm {' and '.join(missing)}, which is not run")
    if scenario.expect.controls_differ and not any(arm.startswith("control-") for arm in arms):
        found.append("expect.controls_differ: needs arm control-foreign or control-corrupt")
    return found
