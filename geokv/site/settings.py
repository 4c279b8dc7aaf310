"""Everything one site needs to know before it starts; travels to its process by pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from geokv.cache.codec_cost import CodecCost
from geokv.cache.lifetime.forgetting import PurgeSettings
from geokv.cache.locality import WritePolicy
from geokv.cache.membership import MembershipSettings
from geokv.cache.publishing import PublishPolicy
from geokv.cache.replicating import Replication
from geokv.cache.substrate.choose import Kind
from geokv.cache.substrate.tcp.keyring import Keyring

Reuse = Literal["none", "local", "remote"]
"""What a request may reuse: nothing, this site's tiers, or any site's."""


@dataclass(frozen=True)
class Tenant:
    """A customer of the deployment.

    Attributes:
        name: as records show it.
        api_key: what its clients send as bearer token.
        salt: root of its cache keys; equal on all sites, unequal between tenants.
    """

    name: str
    api_key: str
    salt: bytes


@dataclass(frozen=True)
class Peer:
    """Another site's KV server."""

    host: str
    port: int


@dataclass(frozen=True)
class DiskSettings:
    """A site's disk, as of the deployment the run stands for.

    Attributes:
        folder: of this site alone.
        queue_chunks: chunks on their way down at most.
        read_bytes_per_s, write_bytes_per_s, read_latency_s, write_latency_s: what it is
            charged, when computing is charged.
    """

    folder: str
    size_bytes: int
    policy: str
    queue_chunks: int
    sync: bool
    retry_s: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    read_latency_s: float
    write_latency_s: float


@dataclass(frozen=True)
class SiteSettings:
    """One site of a deployment.

    ``device_bytes``, ``dram_bytes`` and ``stands_for`` describe the deployment the run
    stands for; ``byte_scale`` (S) divides what crosses the wire. ``seed`` fixes the
    weights of a built-in model and must agree between sites. ``secret`` is the keys dealt
    to this site, or the deployment's secret where one hand holds all sites.
    """

    name: str
    host: str
    api_port: int
    kv_port: int
    control_socket: str
    history_path: str
    peers: dict[str, Peer]
    tenants: tuple[Tenant, ...]
    secret: bytes | Keyring
    incarnation: int
    directory_site: str | None
    model: str
    seed: int
    stands_for: str
    compute: Literal["charged", "real"]
    content: Literal["model", "synthetic"]
    dtype: Literal["float32", "float16", "bfloat16"]
    threaded: bool
    byte_scale: int
    block_tokens: int
    chunk_tokens: int
    layer_groups: int
    max_batch_tokens: int | None
    max_running: int
    max_waiting: int
    order: str
    device_bytes: int
    dram_bytes: int
    streams: int
    in_flight: int
    fetch_deadline_s: float
    request_deadline_s: float
    key_tokens: int = 0
    """Tokens per link of the key chain; 0 is ``block_tokens``."""
    shards: int = 1
    disk: DiskSettings | None = None
    dram_policy: str = "lru"
    code: tuple[str, ...] = ()
    """Folders with modules that a policy may be named from."""
    write: WritePolicy = "write-back"
    publish: PublishPolicy = "all"
    quota: float | None = None
    """Share of each tier that one tenant may have."""
    overlap: bool = False
    exact: bool = True
    mixed: Literal["refuse", "convert"] = "refuse"
    substrate: Kind = "tcp"
    tenant_caps: Mapping[str, int] = field(default_factory=dict)
    """Tenant → bit/s that go out for it, already divided by S."""
    link_caps: Mapping[str, int] = field(default_factory=dict)
    """Peer → bit/s that go out to it, already divided by S."""
    replication: Replication | None = None
    codec: str = "none"
    codec_cost: CodecCost | None = None
    """Of the deployment the run stands for, when computing is charged; None is that of
    ``stands_for``'s GPUs and of a core."""
    membership: MembershipSettings | None = None
    purge: PurgeSettings | None = None
    lease_s: float = 10.0
    """How long a chunk is pinned for one answer at most."""
    anti_entropy_s: float | None = None
    """Between two comparisons with the directory; None numbers nothing and compares nothing."""
    security: Literal["mac", "tls"] = "mac"
    audit: bool = False
    """Of a drill: every operation is in the history before anything follows from it, and what
    is handed to the engine is summed once more there."""
    sabotage: str | None = None
    """Of a drill's negative control: a name of :mod:`geokv.site.sabotage`."""
    operator_keys: tuple[str, ...] = ()
    """API keys that may read /metrics from another machine; see ``build_api``."""
    max_tokens: int | None = None
    """Longest context of synthetic content; that of ``model`` when None."""
