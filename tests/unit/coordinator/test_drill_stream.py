"""What a stream asks and when, and a client that has many requests in flight."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, cast

import pytest
from site_processes import ACME, Site, SiteRoom, prompt

from geokv.coordinator.client import Question
from geokv.coordinator.drill import client as drill_client
from geokv.coordinator.drill.client import StreamClient
from geokv.coordinator.drill.control import SiteControl
from geokv.coordinator.drill.schedule import schedule
from geokv.coordinator.prompts import StreamPrompts
from geokv.errors import RunError
from geokv.scenario.workload import Stream

BASIC: dict[str, Any] = {
    "kind": "stream", "askers": {"b": 3, "c": 1}, "providers": ["a"], "prefixes": 3,
    "prefix_tokens": 64, "question_tokens": 16, "requests": 400, "rate": 50,
}  # fmt: skip


def made(seed: int = 1, **changes: Any) -> list[Any]:
    workload = Stream(**{**BASIC, **changes})
    return schedule(workload, StreamPrompts(workload, seed), seed)


def test_constant_arrivals_are_a_rate_apart_and_begin_at_once() -> None:
    due = made()
    assert [one.due_ns for one in due] == [number * 20_000_000 for number in range(400)]
    assert [one.number for one in due] == list(range(400))


def test_poisson_arrivals_keep_the_rate_and_the_seed() -> None:
    due = [one.due_ns for one in made(arrivals="poisson", requests=4000)]
    assert due[0] == 0 and due == sorted(due)
    assert due[-1] / 3999 == pytest.approx(20_000_000, rel=0.05)
    gaps = [after - before for before, after in pairwise(due)]
    # Of an exponential law: as far from its mean as the mean is large.
    spread = (sum((gap - 20e6) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert spread == pytest.approx(20e6, rel=0.1)
    assert due == [one.due_ns for one in made(arrivals="poisson", requests=4000)]
    assert due != [one.due_ns for one in made(seed=2, arrivals="poisson", requests=4000)]


def test_sites_are_drawn_by_their_share_and_apart_from_everything_else() -> None:
    due = made(requests=4000)
    assert Counter(one.site for one in due)["b"] / 4000 == pytest.approx(0.75, abs=0.03)
    other = made(requests=4000, arrivals="poisson", askers={"b": 1})
    assert [one.tokens for one in due] == [one.tokens for one in other]


def test_tenants_take_turns_and_have_prefixes_of_their_own() -> None:
    due = made(tenants=2)
    assert [one.tenant for one in due[:4]] == [0, 1, 0, 1]
    prefixes = [{tuple(one.tokens[:64]) for one in due if one.tenant == t} for t in (0, 1)]
    assert [len(one) for one in prefixes] == [3, 3]
    assert not prefixes[0] & prefixes[1]
    assert len({tuple(one.tokens) for one in due}) == len({one.prompt for one in due}) == 400


def test_tenants_may_ask_the_very_same_texts() -> None:
    due = made(tenants=2, texts="same")
    prefixes = [{tuple(one.tokens[:64]) for one in due if one.tenant == t} for t in (0, 1)]
    assert prefixes[0] == prefixes[1] and len(prefixes[0]) == 3


def test_providers_prepare_what_is_asked_for() -> None:
    workload = Stream(**{**BASIC, "tenants": 2})
    prompts = StreamPrompts(workload, 1)
    assert prompts.prefixes == 6
    prepared = {tuple(prompts.preparing(0, number)[:64]) for number in range(prompts.prefixes)}
    assert prepared == {tuple(one.tokens[:64]) for one in made(tenants=2)}
    asked = {tuple(one.tokens) for one in made(tenants=2)}
    assert not asked & {tuple(prompts.preparing(0, number)) for number in range(6)}


def test_half_of_a_stream_asks_what_nobody_has_had() -> None:
    usual, probed = made(tenants=2), made(tenants=2, probe="recompute")
    assert Counter(one.probe for one in probed) == {"cached": 200, "cold": 200}
    # Shuffled: neither kind keeps to one half of the drill, or to one tenant.
    for part in (probed[:200], probed[::2]):
        assert 70 < sum(one.probe == "cold" for one in part) < 130
    for before, after in zip(usual, probed, strict=True):
        if after.probe == "cached":
            assert after._replace(probe="") == before
        else:
            assert after[:5] == before[:5] and after.tokens[64:] == before.tokens[64:]
    cold = {one.prefix: tuple(one.tokens[:64]) for one in probed if one.probe == "cold"}
    assert len(cold) == len(set(cold.values())) == 200
    assert not {one.prefix for one in usual} & cold.keys()
    assert probed == made(tenants=2, probe="recompute")
    assert probed != made(seed=2, tenants=2, probe="recompute")


def test_another_tenant_asks_once_for_what_the_first_has_had() -> None:
    changes = {"tenants": 2, "texts": "same", "cold": "keep", "prefixes": 50, "requests": 150}
    due = made(**changes, probe="other-tenant")
    own, probes = due[:50], due[50:]
    assert [(one.tenant, one.probe, one.prefix) for one in own] == [
        (0, "cached", prefix) for prefix in range(50)
    ]
    assert {one.tenant for one in probes} == {1}
    assert Counter(one.probe for one in probes) == {"cached-elsewhere": 50, "cold": 50}
    assert 15 < sum(one.probe == "cold" for one in probes[:50]) < 35
    elsewhere = {one.prefix: one.tokens[:64] for one in probes if one.probe != "cold"}
    assert elsewhere == {one.prefix: one.tokens[:64] for one in own}
    assert len({tuple(one.tokens[:64]) for one in due}) == 100
    assert Stream(**{**BASIC, **changes, "probe": "other-tenant"}).prepared_for == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"probe": "recompute", "requests": 5}, "half of them"),
        ({"probe": "other-tenant", "requests": 9}, "needs tenants 2, texts same and cold keep"),
        (
            {"probe": "other-tenant", "tenants": 2, "texts": "same", "cold": "keep"},
            "three times the prefixes, 9, got 400",
        ),
    ],
)
def test_what_a_probe_needs(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Stream(**{**BASIC, **changes})


@pytest.fixture
def site(own_room: SiteRoom) -> Site:
    return own_room.start(own_room.settings("a", max_running=4))


@pytest.fixture
async def client() -> AsyncIterator[StreamClient]:
    ours, theirs = multiprocessing.Pipe()
    serving = asyncio.ensure_future(drill_client._serve(cast(Any, theirs)))
    made_here = StreamClient(cast(Any, None), cast(Any, ours))
    yield made_here
    made_here.stop_listening()
    ours.close()
    async with asyncio.timeout(5):
        await serving
    theirs.close()


def question(site: Site, name: str, **changes: Any) -> Question:
    fields = {"max_tokens": 2, "deadline_s": 20.0, **changes}
    return Question(
        name,
        f"{site.url}/v1/completions",
        ACME.api_key,
        "geokv-tiny",
        prompt(40, seed=sum(name.encode())),
        fields["max_tokens"],
        fields["deadline_s"],
    )


async def test_replies_come_as_they_end_and_find_whom_they_are_for(
    site: Site, client: StreamClient
) -> None:
    ended: list[str] = []

    async def ask(name: str, tokens: int) -> None:
        reply = await client.ask(question(site, name, max_tokens=tokens))
        assert reply.request_id == name and reply.error is None and reply.status == 200
        ended.append(name)

    await asyncio.gather(ask("long", 200), *(ask(f"short-{n}", 1) for n in range(6)))
    assert ended[-1] == "long" and len(ended) == 7


async def test_a_client_that_gives_up_says_so_and_a_refusal_is_none(
    site: Site, client: StreamClient
) -> None:
    refused = await client.ask(question(site, "refused", max_tokens=10**6))
    assert refused.status == 400 and not refused.gave_up
    pid = site.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        late, dead = await asyncio.gather(
            client.ask(question(site, "late", deadline_s=0.3)),
            _refused_control(SiteControl("a", site.settings.control_socket)),
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    assert late.gave_up and late.error == "no answer within 0.3 s"
    assert "site a does not answer /stats within 0.3 s" in dead


async def _refused_control(control: SiteControl) -> str:
    """A frozen site costs whoever asks it the deadline and no more."""
    try:
        async with asyncio.timeout(2):
            await control.get("/stats", deadline_s=0.3)
    except RunError as error:
        return error.message
    finally:
        await control.aclose()
    return "it answered"


async def test_a_client_that_has_ended_is_this_runs_fault(site: Site) -> None:
    ours, theirs = multiprocessing.Pipe()
    gone = StreamClient(cast(Any, None), cast(Any, ours))
    asked = asyncio.ensure_future(gone.ask(question(site, "nobody")))
    await asyncio.sleep(0.01)
    theirs.close()
    with pytest.raises(RunError, match="the load client ended"):
        await asked
    gone.stop_listening()
    ours.close()
