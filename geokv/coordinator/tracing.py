"""What the trace of a run needs to know of each request: its prompt as chained blocks, and what
was done to sites before it was sent."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from geokv.cache.keys import KEY_BYTES, block_keys
from geokv.coordinator.fleet import Fleet
from geokv.scenario import Scenario
from geokv.site.settings import Reuse

MOST_BLOCK_TOKENS = 16
"""Checkers tell prompts apart in steps of so many tokens."""
_ROOT = bytes(KEY_BYTES)
_SHOWN_BYTES = 8


def block_tokens(scenario: Scenario) -> int:
    """Tokens of a block of the trace: what divides the pages of every site, so that equal blocks
    are equal pages."""
    pages = [scenario.deployment.at(site).block_tokens for site in scenario.topology.sites]
    return gcd(MOST_BLOCK_TOKENS, *pages)


def prompt_blocks(tokens: Sequence[int], size: int) -> list[str]:
    """A name for every ``size`` tokens of a prompt *and all before them*, the shorter rest at the
    end included: 16 hex digits. Equal names are equal beginnings, whoever asks."""
    whole = block_keys(_ROOT, tokens, size)
    rest = list(tokens[len(whole) * size :])
    if rest:
        whole.append(block_keys(whole[-1] if whole else _ROOT, rest, len(rest))[0])
    return [key[:_SHOWN_BYTES].hex() for key in whole]


class Setup:
    """Does to sites what an arm wants done between requests, and remembers it for the trace.

    Every call waits until the site has done it.

    Raises:
        RunError: from every call, when the site does not do it.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._done: list[str] = []

    def settle(self, site: str) -> None:
        """All that was answered so far is stored and published."""
        self._fleet.sites[site].post("/settle")
        self._done.append(f"settle {site}")

    def reuse(self, site: str, how: Reuse) -> None:
        """What the next requests may find cached."""
        self._fleet.sites[site].post("/policy", reuse=how)
        self._done.append(f"reuse {site} {how}")

    def forget(self, site: str) -> None:
        """All its tiers are emptied, and the directory knows."""
        self._fleet.sites[site].forget()
        self._done.append(f"forget {site}")

    def take(self) -> list[str]:
        """What was done since this was last asked, in order."""
        done, self._done = self._done, []
        return done
