"""What the user draws: sites, and the links between them.

    name: pair
    sites: {a: {}, b: {}}
    links:
      a-b: {km: 50, kind: apn}

A link's unset fields come from the profile that ``kind`` names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx
from pydantic import BeforeValidator, Field, field_validator, model_validator

from geokv.config import Strict, load_yaml, validate
from geokv.errors import ConfigError
from geokv.lab.profiles import Congestion, data_folders, known_profiles
from geokv.units import Fraction, Rate, Seconds

SITE_NAME = re.compile(r"[a-z][a-z0-9]{0,7}")
HALF_EARTH_KM = 20_038


class RandomLoss(Strict):
    """Every packet is lost on its own; the share is the link's ``loss``."""

    kind: Literal["random"] = "random"


class GilbertElliott(Strict):
    """Losses in bursts: a chain of two states (Gilbert 1960, Elliott 1963).

    Attributes:
        good_to_bad: chance per packet of entering the bad state.
        bad_to_good: chance per packet of leaving it; 1/it is the mean burst in packets.
        loss_in_bad: share lost in the bad state.
        loss_in_good: share lost in the good state.
    """

    kind: Literal["gilbert-elliott"]
    good_to_bad: Fraction = Field(gt=0, le=1)
    bad_to_good: Fraction = Field(gt=0, le=1)
    loss_in_bad: Fraction = Field(default=1.0, ge=0, le=1)
    loss_in_good: Fraction = Field(default=0.0, ge=0, le=1)

    @property
    def mean_loss(self) -> float:
        """Long-run share of lost packets."""
        bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        return bad * self.loss_in_bad + (1 - bad) * self.loss_in_good


Protection = Annotated[Seconds, Field(ge=0, le=86_400)] | Literal["never"]

LossModel = Annotated[RandomLoss | GilbertElliott, Field(discriminator="kind")]


class Link(Strict):
    """One fibre path, two directions; ``None`` means "as the profile says".

    Attributes:
        km: straight distance.
        kind: profile name.
        rate: line rate, bit/s, before any byte scale.
        detour: fibre length over ``km``.
        loss: share of packets lost at random.
        jitter: half-width of the uniform spread of the one-way delay, seconds.
        extra_delay: added to the one-way delay that ``km`` and profile give, seconds.
        corrupt, reorder, duplicate: shares of packets.
        mtu: bytes of an IP packet.
        congestion: TCP congestion control on routes whose first link is this one.
        idle_restart: connections of the sites at its ends forget their window in a pause longer
            than their retransmission timeout (RFC 5681 §4.1, Linux's default).
        protection: from the loss of its light to the moved routes, seconds; ``never`` leaves
            them where they are.
        revertive: routes come back when the light does.
    """

    km: float = Field(ge=0, le=HALF_EARTH_KM, allow_inf_nan=False)
    kind: str = "apn"
    rate: Rate | None = Field(default=None, gt=0, le=10**15)
    detour: float | None = Field(default=None, ge=1, le=10)
    loss: Fraction | None = Field(default=None, ge=0, le=1)
    loss_model: LossModel | None = None
    jitter: Seconds | None = Field(default=None, ge=0, le=2)
    extra_delay: Seconds = Field(default=0.0, ge=0, le=10)
    corrupt: Fraction = Field(default=0.0, ge=0, le=1)
    reorder: Fraction = Field(default=0.0, ge=0, lt=1)
    duplicate: Fraction = Field(default=0.0, ge=0, le=1)
    mtu: int | None = Field(default=None, ge=576, le=65535)
    congestion: Congestion | None = None
    idle_restart: bool = False
    protection: Protection | None = None
    revertive: bool = True

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        if kind not in known_profiles():
            raise ValueError(f"unknown profile {kind!r} (known: {', '.join(known_profiles())})")
        return kind

    @model_validator(mode="after")
    def _one_loss(self) -> Link:
        if isinstance(self.loss_model, GilbertElliott) and self.loss is not None:
            raise ValueError("loss: not together with loss_model gilbert-elliott, which defines it")
        return self


class Site(Strict):
    """A small data centre."""

    title: str = ""


def _empty_site(value: object) -> object:
    return {} if value is None else value


class Topology(Strict):
    """Sites and links; every site is reached, every pair of sites is connected."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    title: str = ""
    sites: dict[str, Annotated[Site, BeforeValidator(_empty_site)]] = Field(min_length=1)
    links: dict[str, Link] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> Topology:
        problems = list(_problems(self))
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def with_link(self, link: str, **changes: Any) -> Topology:
        """This topology with some fields of one link replaced.

        Raises:
            ConfigError: no such link, or the new value is refused (with its path).
        """
        if link not in self.links:
            raise ConfigError(f"links.{link}: no such link (links: {', '.join(self.links)})")
        data = self.model_dump(exclude_unset=True)
        data["links"][link] = {**data["links"][link], **changes}
        return validate(Topology, data)

    def graph(self) -> networkx.Graph[str]:
        """Undirected graph whose edges carry ``link`` (id) and ``km``."""
        graph: networkx.Graph[str] = networkx.Graph()
        graph.add_nodes_from(self.sites)
        for name, link in self.links.items():
            a, b = ends(name)
            graph.add_edge(a, b, link=name, km=link.km)
        return graph


def ends(link: str) -> tuple[str, str]:
    """The two sites of a link id: ``a-b`` → ``("a", "b")``."""
    a, _, b = link.partition("-")
    return a, b


def _problems(topology: Topology) -> list[str]:
    problems = []
    for name in topology.sites:
        if not SITE_NAME.fullmatch(name):
            problems.append(
                f"sites.{name}: a site name is a lower-case letter and up to 7 letters or digits"
            )
    reached: set[str] = set()
    seen: dict[frozenset[str], str] = {}
    for name in topology.links:
        a, b = ends(name)
        if not a or not b or "-" in b:
            problems.append(f"links.{name}: a link is named by its two sites, for example a-b")
            continue
        unknown = [site for site in (a, b) if site not in topology.sites]
        if unknown:
            problems += [
                f"links.{name}: no site is named {site!r} (sites: {', '.join(topology.sites)})"
                for site in unknown
            ]
            continue
        if a == b:
            problems.append(f"links.{name}: joins {a} with itself")
            continue
        pair = frozenset((a, b))
        if pair in seen:
            problems.append(f"links.{name}: the same link as {seen[pair]}; keep one")
        seen[pair] = name
        reached |= pair
    if len(topology.sites) > 1:
        problems += [
            f"sites.{site}: no link reaches it" for site in topology.sites if site not in reached
        ]
    if not problems and len(topology.sites) > 1:
        parts = sorted(
            (sorted(part) for part in networkx.connected_components(topology.graph())), key=str
        )
        if len(parts) > 1:
            shown = " | ".join(" ".join(part) for part in parts)
            problems.append(f"links: the sites fall apart into {len(parts)} networks: {shown}")
    return problems


def load_topology(source: str | Path | Mapping[str, Any] | Topology) -> Topology:
    """A topology from a shipped name (``pair``), a YAML file, or a mapping.

    Raises:
        ConfigError: not found (lists what is shipped) or refused, with the path.
    """
    if isinstance(source, Topology):
        return source
    if isinstance(source, Mapping):
        return validate(Topology, dict(source))
    text = str(source)
    if "/" in text or text.endswith((".yaml", ".yml")):
        return validate(Topology, load_yaml(Path(text)), text)
    folders = data_folders("topologies")
    for folder in folders:
        path = folder / f"{text}.yaml"
        if path.is_file():
            return validate(Topology, load_yaml(path), path.name)
    shipped = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    near = difflib.get_close_matches(text, shipped, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(
        f"no topology is named {text!r}{meant} (shipped: {', '.join(shipped) or 'none found'})",
        "give a shipped name or the path of a YAML file",
    )
