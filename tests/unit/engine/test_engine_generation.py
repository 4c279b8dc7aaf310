from __future__ import annotations

import math

import pytest
import torch

from geokv.engine.generation import Generation, TokenEvent, _Text, token_logprob
from geokv.engine.sampling import SamplingParams
from geokv.engine.tokenizer import ByteTokenizer
from geokv.errors import ComputeError


def row(token: int, vocab: int = 264) -> torch.Tensor:
    """Logits whose largest is ``token``."""
    logits = torch.zeros(vocab)
    logits[token] = 9.0
    return logits


def run(text: bytes, params: SamplingParams, limit: int = 1000) -> list[TokenEvent]:
    """Greedy events for a model that says ``text`` and then its end token."""
    generation = Generation(params, ByteTokenizer(), limit)
    events = []
    for token in [*text, ByteTokenizer.eos]:
        events.append(generation.take(row(token)))
        if generation.finish:
            break
    assert [event.index for event in events] == list(range(len(events)))
    assert all(event.finish is None for event in events[:-1])
    return events


def said(events: list[TokenEvent]) -> tuple[str, str | None]:
    return "".join(event.text for event in events), events[-1].finish


def test_an_answer_ends_with_the_end_token_which_adds_no_text() -> None:
    events = run("Kyoto é".encode(), SamplingParams(max_tokens=40))
    assert said(events) == ("Kyoto é", "stop")
    assert events[-1].token == ByteTokenizer.eos


def test_the_shorter_of_the_two_limits_decides() -> None:
    assert said(run(b"abcdef", SamplingParams(max_tokens=3))) == ("abc", "length")
    assert said(run(b"abcdef", SamplingParams(max_tokens=30), limit=2)) == ("ab", "length")


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    assert said(run("aé".encode(), SamplingParams(max_tokens=2))) == ("a\ufffd", "length")


def test_ignoring_the_end_token_goes_on() -> None:
    generation = Generation(SamplingParams(max_tokens=3, ignore_eos=True), ByteTokenizer(), 99)
    finishes = [generation.take(row(token)).finish for token in (257, 65, 66)]
    assert finishes == [None, None, "length"]


def test_stop_tokens_and_stop_strings_end_it() -> None:
    assert said(run(b"abcdef", SamplingParams(stop_token_ids=(100,)))) == ("abc", "stop")
    assert said(run(b"one END two", SamplingParams(max_tokens=40, stop=("END",)))) == (
        "one ",
        "stop",
    )


def test_a_stop_string_is_held_back_until_it_is_sure() -> None:
    text = _Text(ByteTokenizer().detokenizer(), ("END",))
    shown = [text.push(byte) for byte in b"aENbEND"]
    assert [piece for piece, _ in shown] == ["a", "", "", "ENb", "", "", ""]
    assert [stopped for _, stopped in shown] == [False] * 6 + [True]
    text = _Text(ByteTokenizer().detokenizer(), ("END",))
    assert [text.push(byte)[0] for byte in b"xEN"] == ["x", "", ""]
    assert text.finish() == "EN"


def test_logprobs_are_the_models_own_whatever_the_temperature() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0])
    total = math.log(sum(math.exp(value) for value in logits.tolist()))
    hot = Generation(SamplingParams(temperature=2.0, top_k=1, logprobs=2), None, 99)
    event = hot.take(logits)
    assert event.token == 4
    assert event.logprob is not None
    assert event.logprob.logprob == pytest.approx(3 - total)
    assert [token for token, _ in event.logprob.top] == [4, 0]
    assert [value for _, value in event.logprob.top] == pytest.approx([3 - total, 2 - total])
    assert token_logprob(logits, 3, 0).top == ()
    assert token_logprob(logits, 3, 0).logprob == pytest.approx(-1 - total)
    # More than there are is all there are.
    assert len(token_logprob(logits, 3, 20).top) == 5


def test_answers_to_one_prompt_draw_apart_and_repeat() -> None:
    def draws(seed: int, choice: int) -> list[int]:
        params = SamplingParams(max_tokens=50, temperature=5.0, seed=seed)
        generation = Generation(params, None, 99, choice)
        return [generation.take(torch.arange(8.0)).token for _ in range(30)]

    assert draws(1, 0) == draws(1, 0)
    assert draws(1, 0) != draws(1, 1)


def test_a_known_best_is_taken_only_by_the_greedy() -> None:
    logits = torch.tensor([0.0, 5.0, 1.0])
    assert Generation(SamplingParams(), None, 9).take(logits, 2).token == 2
    drawn = Generation(SamplingParams(temperature=1e-3), None, 9)
    assert drawn.take(logits, 2).token == 1


def test_damaged_logits_are_an_error_not_a_token() -> None:
    with pytest.raises(ComputeError, match="not finite"):
        Generation(SamplingParams(), None, 9).take(torch.tensor([0.0, torch.nan]))
