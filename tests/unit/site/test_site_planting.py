"""Wrong KV planted through the control socket: it is served, and the site's check names it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from site_processes import ACME, CHUNK_TOKENS, OTHER, Site, SiteRoom, prompt

CHUNKS = 6
PREFIX = prompt(CHUNKS * CHUNK_TOKENS, seed=31)
FOREIGN = prompt(CHUNKS * CHUNK_TOKENS + 40, seed=32)
TOKENS = [*PREFIX, *prompt(20, seed=33)]


@pytest.fixture(scope="module")
def site(room: SiteRoom) -> Site:
    return room.start(room.settings("a"))


async def answer(site: Site, name: str, tokens: list[int], **more: Any) -> dict[str, Any]:
    assert (await site.ask(name, tokens, max_tokens=2, **more)).error is None
    site.post("/settle")
    return site.record(name)


async def planted(site: Site, name: str, **body: Any) -> dict[str, Any]:
    """The record of a question asked over what was planted; the site is clean afterwards."""
    site.post("/drop", tiers=["device", "dram"])
    await answer(site, f"{name}-prefix", [*PREFIX, 1])
    await answer(site, f"{name}-foreign", FOREIGN, api_key=OTHER.api_key)
    assert site.get("/integrity") == {"integrity": "ok"}
    said = site.post("/plant", tenant=ACME.name, tokens=PREFIX, **body)
    assert said == {"chunks": CHUNKS if body else 1}
    books = site.get("/integrity")
    assert "does not match its checksums" in books["integrity"]
    assert len(books["damaged"]["dram"]) == said["chunks"]
    site.post("/drop", tiers=["device"])
    record = await answer(site, name, TOKENS)
    assert (record["source"], record["cached_tokens"]) == ("dram", len(PREFIX))
    site.post("/drop", tiers=["device", "dram"])
    assert site.get("/integrity") == {"integrity": "ok"}
    return record


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    pairs = zip(one["first_logits"], other["first_logits"], strict=True)
    return max(abs(a - b) for a, b in pairs)


async def test_what_is_planted_changes_the_answer(site: Site) -> None:
    site.post("/policy", reuse="none")
    right = await answer(site, "right", TOKENS)
    site.post("/policy", reuse="local")
    await answer(site, "fill", [*PREFIX, 1])
    assert difference(await answer(site, "reused", TOKENS), right) < 1e-3
    donor = {"tenant": OTHER.name, "tokens": FOREIGN}
    foreign = await planted(site, "foreign", donor=donor)
    corrupt = await planted(site, "corrupt")
    assert difference(foreign, right) > 0.1
    assert difference(corrupt, right) > 0.1
    assert difference(corrupt, foreign) > 0.1


def test_what_cannot_be_planted_is_refused(site: Site) -> None:
    site.post("/drop", tiers=["device", "dram"])

    def refused(**body: Any) -> str:
        with pytest.raises(httpx.HTTPStatusError) as caught:
            site.post("/plant", **body)
        return str(caught.value.response.json()["error"])

    assert "6 of 6 chunks of acme are not in" in refused(tenant=ACME.name, tokens=PREFIX)
    assert "0 of 0 chunks" in refused(tenant=ACME.name, tokens=PREFIX[:5])
    assert "no tenant 'nobody'" in refused(tenant="nobody", tokens=PREFIX)
