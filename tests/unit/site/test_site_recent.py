"""What a site remembers of past requests stays within its bounds, and says what it forgot."""

from __future__ import annotations

import torch
from site_processes import SiteRoom, prompt

from geokv.engine.generation import TokenEvent
from geokv.site.recent import RecentRequests
from geokv.site.record import RequestRecord

VOCAB = 1000


def ended(recent: RecentRequests, name: str, tokens: int = 1, row: bool = True) -> RequestRecord:
    record = RequestRecord(name, "t", 10, 0)
    recent.begin(record)
    for index in range(tokens):
        record.take(TokenEvent(index, index, "x", None, 0), index)
    recent.end(record, torch.full((VOCAB,), float(tokens)) if row else None)
    return record


def logits(recent: RecentRequests, name: str) -> list[float]:
    said = recent.describe(name)
    assert said is not None
    return list(said["first_logits"])


def test_logits_are_kept_of_the_latest_and_absent_beyond() -> None:
    recent = RecentRequests(logits_bytes=3 * VOCAB * 4)
    for number in range(10):
        ended(recent, str(number), tokens=number)
    assert [logits(recent, str(n)) == [float(n)] * VOCAB for n in range(7, 10)] == [True] * 3
    assert [logits(recent, str(n)) for n in range(7)] == [[]] * 7
    assert recent.logits_bytes == 3 * VOCAB * 4
    assert len(recent) == 10


def test_one_row_beyond_the_bound_is_there_until_the_next() -> None:
    recent = RecentRequests(logits_bytes=10)
    for name in "ab":
        ended(recent, name)
        assert len(logits(recent, name)) == VOCAB
    assert logits(recent, "a") == []


def test_a_row_does_not_keep_its_batch() -> None:
    recent = RecentRequests()
    record = RequestRecord("one", "t", 10, 0)
    recent.begin(record)
    batch = torch.zeros(64, VOCAB)
    recent.end(record, batch[3])
    batch.fill_(1.0)
    assert logits(recent, "one") == [0.0] * VOCAB
    assert recent.logits_bytes == VOCAB * 4


def test_records_are_bounded_by_number_and_by_what_they_hold() -> None:
    few = RecentRequests(records=3)
    for number in range(5):
        ended(few, str(number))
    assert list(few) == ["2", "3", "4"]
    assert few.describe("1") is None
    short = RecentRequests(tokens=100)
    for number in range(5):
        ended(short, str(number), tokens=40)
    assert list(short) == ["3", "4"]
    ended(short, "long", tokens=1000)
    assert list(short) == ["long"] and short["long"].completion_tokens == 1000
    ended(short, "next", tokens=40)
    assert list(short) == ["next"]


def test_a_request_that_took_long_is_there_when_it_ends() -> None:
    recent = RecentRequests(records=3)
    slow = RequestRecord("slow", "t", 10, 0)
    recent.begin(slow)
    for number in range(5):
        ended(recent, str(number))
    assert "slow" not in recent
    recent.end(slow, torch.zeros(VOCAB))
    assert recent["slow"] is slow and len(logits(recent, "slow")) == VOCAB
    assert list(recent) == ["3", "4", "slow"]


def test_the_later_of_two_by_one_name_is_kept_and_counted_once() -> None:
    recent = RecentRequests(tokens=100)
    ended(recent, "same", tokens=90)
    other = RequestRecord("same", "t", 11, 0)
    recent.begin(other)
    assert (recent.logits_bytes, logits(recent, "same")) == (0, [])
    recent.end(RequestRecord("same", "t", 12, 0), torch.zeros(VOCAB))
    assert recent["same"] is other and logits(recent, "same") == []
    recent.end(other, None)
    ended(recent, "more", tokens=90)
    assert list(recent) == ["same", "more"]


async def test_what_a_site_holds_of_its_logits_is_read_as_it_was(room: SiteRoom) -> None:
    site = room.start(room.settings("r"))
    assert (await site.ask("first", prompt(40, seed=1))).error is None
    once, again = site.record("first"), site.record("first")
    assert once == again
    assert len(once["first_logits"]) > 256
    assert once["first_logits"].index(max(once["first_logits"])) == once["output_ids"][0]
