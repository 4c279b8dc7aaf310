"""What a cell asks, as token ids."""

from __future__ import annotations

from geokv.coordinator.prompts import DocumentPrompts, DrawnPrompts
from geokv.engine.tokenizer import ByteTokenizer
from geokv.scenario.workload import Document, SharedPrefix, TextFile

TEXT = "The lamp is green and the door is red. "


def document(**changes: object) -> DocumentPrompts:
    basic = {
        "kind": "document",
        "provider": "a",
        "asker": "b",
        "text": TextFile(file="x", content=TEXT),
        "foreign": TextFile(file="y", content="Z" * 60),
        "questions": ["What colour is the lamp?", "Which colour has the door?"],
    }
    return DocumentPrompts(Document.model_validate({**basic, **changes}), ByteTokenizer(), [16])


def test_a_plain_prompt_reads_as_a_person_would_write_it() -> None:
    prompts = document()
    text = ByteTokenizer().decode(prompts.question(0, 1, False))
    assert text == f"{TEXT.strip()}\n\nQuestion: Which colour has the door?\nAnswer:"
    assert prompts.stop == ("\n",) and not prompts.to_the_end


def test_a_chat_prompt_is_the_templates() -> None:
    prompts = document(template="chat")
    tokens = prompts.question(2, 0, False)
    said = f"{TEXT.strip()}\n\nQuestion: What colour is the lamp? Answer in one short sentence."
    assert tokens == ByteTokenizer().chat([{"role": "user", "content": said}])
    assert prompts.stop == ()


def test_the_prefix_is_what_all_prompts_share_and_no_more() -> None:
    prompts = document()
    asked = [prompts.question(0, n, False) for n in range(2)] + [prompts.preparing(0, 0)]
    size = len(prompts.prefix)
    assert all(tokens[:size] == prompts.prefix for tokens in asked)
    assert len({tokens[size] for tokens in asked}) > 1
    # "What colour" and "What is this" go on together for "Wh", "Which" leaves them there.
    assert ByteTokenizer().decode(prompts.prefix).endswith("Question: Wh")
    assert prompts.longest == max(map(len, asked))
    assert prompts.preparing(0, 0) not in asked[:2]


def test_drawn_prompts_prepare_with_questions_that_no_arm_asks() -> None:
    workload = SharedPrefix(
        kind="shared-prefix", provider="a", asker="b", prefix_tokens=64, question_tokens=16
    )
    prompts = DrawnPrompts(workload, 3)
    asked = [tuple(prompts.question(c, r, w)) for c in (0, 1) for r in (0, 1) for w in (0, 1)]
    prepared = [tuple(prompts.preparing(c, n)) for c in (0, 1) for n in (0, 1, 8)]
    assert len({*asked, *prepared}) == len(asked) + len(prepared)
    assert all(list(tokens[:64]) == prompts.prefix for tokens in (*asked, *prepared))
    assert len(prompts.foreign()) == prompts.longest == 80
    assert prompts.foreign()[:16] != prompts.prefix[:16]
