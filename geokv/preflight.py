"""What only the rooms below can say about a scenario, asked before anything is made."""

from __future__ import annotations

import importlib.util

from geokv import foreign
from geokv.cache.layout import ChunkLayout
from geokv.cache.lifetime import check_policy
from geokv.coordinator.faults import fault_class
from geokv.coordinator.prompts import Prompts, make_prompts
from geokv.engine.config import ModelConfig
from geokv.engine.load import model_config
from geokv.engine.profile import GpuProfile, load_profile
from geokv.engine.synthetic import synthetic_config
from geokv.errors import ConfigError, EngineError
from geokv.routing import check_routing
from geokv.scenario import Scenario
from geokv.scenario.code import named_faults, named_policies, named_routing
from geokv.scenario.substrate import FOREIGN
from geokv.scenario.workload import Document, Trace
from geokv.site.sabotage import check_sabotage
from geokv.units import show_size


def preflight(scenario: Scenario) -> GpuProfile:
    """Check model, GPU profile, byte scale and pool sizes against each other.

    Returns:
        The profile the scenario's times are charged by.

    Raises:
        ConfigError: with the path of the value to change.
    """
    deployment = scenario.deployment
    foreign.use_folders(scenario.code)
    _check_drill(scenario)
    _check_policies(scenario)
    try:
        profile = load_profile(deployment.stands_for)
    except EngineError as error:
        raise ConfigError(f"deployment.stands_for: {error.message}", error.hint) from None
    try:
        config = model_config(deployment.model)
    except EngineError as error:
        raise ConfigError(f"deployment.model: {error.message}", error.hint) from None
    _check_package(scenario)
    _check_cell(scenario, config, profile)
    swept = [path for axis in scenario.sweep for path in axis.paths]
    if scenario.control is None and all(path.startswith("links.") for path in swept):
        return profile
    for cell in scenario.cells():
        try:
            _check_package(cell.scenario)
            _check_policies(cell.scenario)
            _check_cell(cell.scenario, config, profile)
        except ConfigError as error:
            raise ConfigError(f"cell {cell.label}: {error.message}", error.hint) from None
    return profile


def _check_package(scenario: Scenario) -> None:
    """A transport that is no part of geokv must be installed."""
    kind = scenario.cache.substrate.kind
    if kind in FOREIGN and importlib.util.find_spec(kind) is None:
        raise ConfigError(
            f"cache.substrate.kind: {kind} is not installed", f"pip install 'geokv[{kind}]'"
        )


def _check_policies(scenario: Scenario) -> None:
    for path, name in named_policies(scenario).items():
        try:
            check_policy(name)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", error.hint) from error
    routing = named_routing(scenario)
    if routing is None:
        return
    sites = scenario.routing.sites or list(scenario.topology.sites)
    try:
        check_routing(routing, scenario.workload.asker, sites)
    except ConfigError as error:
        raise ConfigError(f"routing.policy: {error.message}", error.hint) from error


def provenance_of_code(scenario: Scenario) -> list[dict[str, str]]:
    """Name, file and hash of every class of the user's own that some cell names, by name.

    Raises:
        ConfigError: one cannot be had.
    """
    found: dict[str, str] = {}
    for one in (scenario, *(cell.scenario for cell in scenario.cells())):
        found.update(dict.fromkeys(named_policies(one).values(), foreign.EVICTION))
        found.update(dict.fromkeys(named_faults(one).values(), ""))
        if routing := named_routing(one):
            found[routing] = foreign.ROUTING
    return [foreign.provenance(group, name) for name, group in sorted(found.items())]


def _check_drill(scenario: Scenario) -> None:
    """Every fault of the timeline can be made here, and the control's sabotage planted."""
    own = {name: path for path, name in named_faults(scenario).items()}
    for event in scenario.timeline:
        try:
            fault_class(event.fault)
        except ConfigError as error:
            if event.fault not in own:
                raise
            raise ConfigError(f"{own[event.fault]}: {error.message}", error.hint) from error
    if scenario.control is not None and scenario.control.sabotage is not None:
        check_sabotage(scenario.control.sabotage)


def _check_cell(scenario: Scenario, config: ModelConfig, profile: GpuProfile) -> None:
    deployment = scenario.deployment
    if deployment.content == "synthetic":
        config = synthetic_config(config, deployment.layer_groups, deployment.max_tokens)
    _check_layout(scenario, config, profile)
    try:
        prompts = make_prompts(scenario)
    except EngineError as error:
        raise ConfigError(f"deployment.model: {error.message}", error.hint) from None
    _check_lengths(scenario, prompts, config)
    _check_pools(scenario, prompts, profile)


def _check_layout(scenario: Scenario, config: ModelConfig, profile: GpuProfile) -> None:
    for site in scenario.topology.sites:
        deployment = scenario.deployment.at(site)
        mixed = deployment is not scenario.deployment
        try:
            ChunkLayout.scaled(
                target_bytes_per_token=profile.kv_bytes_per_token,
                byte_scale=deployment.byte_scale,
                model_fingerprint=deployment.model,
                dtype=deployment.dtype if deployment.content == "model" else "int8",
                layers=config.layers,
                kv_heads=config.kv_heads,
                head_dim=config.head_dim,
                block_tokens=deployment.block_tokens,
                chunk_tokens=deployment.chunk_tokens,
                groups=deployment.layer_groups,
                key_tokens=scenario.deployment.chain_tokens,
                shards=deployment.shards,
            )
        except ConfigError as error:
            place = f"deployment.sites.{site}: " if mixed else "deployment."
            raise ConfigError(f"{place}{error.message}", error.hint) from None


def _check_lengths(scenario: Scenario, prompts: Prompts, config: ModelConfig) -> None:
    tokens = prompts.longest + scenario.workload.output_tokens
    if tokens > config.max_tokens:
        if isinstance(scenario.workload, Trace):
            raise ConfigError(
                f"workload.file: the longest prompt and answer are {tokens} tokens, "
                f"{scenario.deployment.model} takes {config.max_tokens}",
                "cut prompts with workload.longest_tokens and answers with "
                "workload.answers_at_most, or use content: synthetic with deployment.max_tokens",
            )
        text = "text" if isinstance(scenario.workload, Document) else "prefix_tokens"
        raise ConfigError(
            f"workload.{text}: prefix, question and answer are {tokens} tokens, "
            f"{scenario.deployment.model} takes {config.max_tokens}",
            "synthetic content takes what deployment.max_tokens says"
            if scenario.deployment.content == "synthetic"
            else "",
        )


def _check_pools(scenario: Scenario, prompts: Prompts, profile: GpuProfile) -> None:
    """One request must fit the device, and the prefix the provider's dram."""
    tokens = prompts.longest + scenario.workload.output_tokens
    # Of a working set the tiers need not hold more than what is asked for now.
    kept = len(prompts.prefix)
    if "control-foreign" in scenario.arms:
        # The asker then holds both texts, each with its question's own chunks.
        kept = prompts.longest + len(prompts.foreign())
    for site in scenario.topology.sites:
        own = scenario.deployment.at(site)
        blocks = -(-tokens // own.block_tokens) + 1
        needs = {
            "device_bytes": blocks * own.block_tokens * profile.kv_bytes_per_token,
            "dram_bytes": kept * profile.kv_bytes_per_token,
        }
        for name, needed in needs.items():
            has = getattr(own, name)
            if has < needed:
                place = scenario.deployment.place(name, site)
                raise ConfigError(
                    f"deployment.{place}: {show_size(has)} is too small: one request of {tokens} "
                    f"tokens needs {show_size(needed)}"
                )
