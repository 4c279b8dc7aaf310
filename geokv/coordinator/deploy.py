"""From a scenario and a built lab to settings of each site."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from geokv.cache.codec_cost import CodecCost
from geokv.cache.lifetime.forgetting import PurgeSettings
from geokv.cache.membership import MembershipSettings
from geokv.cache.replicating import Replication
from geokv.cache.substrate.tcp.keyring import deal
from geokv.lab.build import Lab
from geokv.scenario import Scenario
from geokv.scenario.directory import CentralDirectory
from geokv.scenario.membership import Membership
from geokv.scenario.substrate import CodecSpeed
from geokv.scenario.workload import OpenLoop
from geokv.site.settings import DiskSettings, Peer, SiteSettings, Tenant

API_PORT = 8000
KV_PORT = 7000


def run_secret(scenario: Scenario, purpose: str) -> bytes:
    """32 bytes derived from the scenario's seed: a run is repeatable to its last nonce, and what
    is only worded otherwise, or differs in one setting, has the same keys in the same order.

    The network of a lab is private to the run; a deployment that is not a lab takes
    its secret from its operator.
    """
    return hashlib.blake2b(f"{scenario.seed}/{purpose}".encode(), digest_size=32).digest()


def tenants(scenario: Scenario) -> tuple[Tenant, ...]:
    """The tenants of a run with their keys: the one that is measured, and at least one other."""
    workload = scenario.workload
    count = max(2, workload.tenants) if isinstance(workload, OpenLoop) else 2
    return tuple(
        Tenant(
            name,
            "sk-" + run_secret(scenario, f"api-key{suffix}").hex()[:40],
            run_secret(scenario, f"salt{suffix}"),
        )
        for name, suffix in _names(count)
    )


def _names(count: int) -> list[tuple[str, str]]:
    """Name of each tenant, and what its secrets are called by."""
    return [(f"tenant-{number}", f"-{number}" if number else "") for number in range(count)]


def site_settings(
    run: Scenario,
    scenario: Scenario,
    lab: Lab,
    control: Path,
    records: Path,
    part: str,
    life: int,
) -> list[SiteSettings]:
    """Settings of every site of the lab.

    Args:
        run: whose secrets and keys they have.
        scenario: of the cell.
        control: folder of the control sockets, private to this user.
        records: where sites write their history; ``part`` keeps VMs of a run apart.
        life: how often sites have been started so far, this time included.
    """
    deployment, cache = scenario.deployment, scenario.cache
    directory = cache.directory
    names = list(scenario.topology.sites)
    own = {name: deployment.at(name) for name in names}
    tls = cache.substrate.security == "tls"
    rings = deal(run_secret(run, "sites"), names, tls=tls)
    control.mkdir(parents=True, exist_ok=True)
    os.chmod(control, 0o700)
    return [
        SiteSettings(
            name=name,
            host=lab.address(name),
            api_port=API_PORT,
            kv_port=KV_PORT,
            control_socket=str(control / f"{name}-{life}.sock"),
            history_path=str(records / f"history-{name}-{part}.jsonl"),
            peers={other: Peer(lab.address(other), KV_PORT) for other in names if other != name},
            tenants=tenants(run),
            secret=rings[name],
            incarnation=life,
            directory_site=directory.site if isinstance(directory, CentralDirectory) else None,
            model=deployment.model,
            seed=scenario.seed,
            stands_for=deployment.stands_for,
            compute=deployment.compute,
            content=deployment.content,
            max_tokens=deployment.max_tokens,
            dtype=own[name].dtype,
            threaded=scenario.clock == "wall",
            byte_scale=deployment.byte_scale,
            block_tokens=own[name].block_tokens,
            chunk_tokens=own[name].chunk_tokens,
            key_tokens=deployment.chain_tokens,
            shards=own[name].shards,
            layer_groups=deployment.layer_groups,
            max_batch_tokens=deployment.max_batch_tokens,
            max_running=deployment.max_running,
            max_waiting=deployment.max_waiting,
            order=deployment.order,
            device_bytes=own[name].device_bytes,
            dram_bytes=own[name].dram_bytes,
            disk=_disk(scenario, name, control / f"disk-{name}-{life}"),
            dram_policy=cache.tiers.dram.policy,
            code=tuple(run.code),
            write=cache.tiers.write,
            publish=cache.tiers.publish,
            quota=cache.tiers.quota,
            overlap=cache.overlap,
            exact=cache.exact,
            mixed=cache.mixed,
            substrate=cache.substrate.kind,
            tenant_caps=_scaled(cache.substrate.tenant_caps or {}, deployment.byte_scale),
            link_caps=_scaled(cache.substrate.caps_of(name), deployment.byte_scale),
            replication=_replication(scenario, name),
            codec=cache.substrate.codec,
            codec_cost=_codec_cost(cache.substrate.codec_cost),
            anti_entropy_s=getattr(directory, "anti_entropy", None),
            membership=_membership(cache.membership),
            lease_s=cache.substrate.lease or 10.0,
            purge=_purge(scenario, control / f"purges-{name}"),
            security=cache.substrate.security,
            streams=cache.substrate.streams,
            in_flight=cache.substrate.in_flight,
            fetch_deadline_s=cache.substrate.deadline,
            request_deadline_s=scenario.workload.deadline,
        )
        for name in names
    ]


def _replication(scenario: Scenario, site: str) -> Replication | None:
    asked = scenario.cache.replication
    to = asked.targets(site, list(scenario.topology.sites)) if asked is not None else ()
    if asked is None or not to:
        return None
    return Replication(to, asked.when, asked.deadline)


def _scaled(caps: dict[str, int], byte_scale: int) -> dict[str, int]:
    """Like the rates of links."""
    return {name: max(1, rate // byte_scale) for name, rate in caps.items()}


def _purge(scenario: Scenario, log: Path) -> PurgeSettings | None:
    asked, directory = scenario.cache.purge, scenario.cache.directory
    if asked is None or not isinstance(directory, CentralDirectory):
        return None
    return PurgeSettings(directory.site, asked.bound, log)


def _codec_cost(asked: CodecSpeed | None) -> CodecCost | None:
    if asked is None:
        return None
    return CodecCost(asked.encode * 1e9, asked.decode * 1e9)


def _membership(asked: Membership | None) -> MembershipSettings | None:
    if asked is None:
        return None
    return MembershipSettings(asked.period, asked.misses, asked.cooldown)


def _disk(scenario: Scenario, site: str, folder: Path) -> DiskSettings | None:
    size_bytes = scenario.deployment.at(site).disk_bytes
    disk = scenario.cache.tiers.disk
    if not size_bytes:
        return None
    return DiskSettings(
        folder=str(folder),
        size_bytes=size_bytes,
        policy=disk.policy,
        queue_chunks=disk.queue_chunks,
        sync=disk.sync,
        retry_s=disk.retry,
        read_bytes_per_s=disk.read / 8,
        write_bytes_per_s=disk.write / 8,
        read_latency_s=disk.read_latency,
        write_latency_s=disk.write_latency,
    )
