"""The shared KV cache of a scenario: ownership and substrate."""

from __future__ import annotations

from pydantic import Field

from geokv.config import Strict
from geokv.scenario.directory import Directory
from geokv.scenario.substrate import Substrate, TcpSubstrate


class CacheSettings(Strict):
    directory: Directory
    substrate: Substrate = Field(default_factory=TcpSubstrate)
