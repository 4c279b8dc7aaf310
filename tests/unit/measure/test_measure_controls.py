"""Control arms: wrong KV must show, and must not be mistaken for wrong answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handwritten import MANIFEST, Run
from handwritten_document import run

from geokv.measure import summarise


def judged(summary: dict[str, Any], name: str) -> tuple[bool | None, str]:
    (item,) = [item for item in summary["expectations"] if item["name"] == name]
    return item["ok"], item["said"]


def test_controls_that_differ_are_kept_apart_from_answers(tmp_path: Path) -> None:
    summary = summarise(run().write(tmp_path))
    assert summary["verdict"] == "pass", summary["reasons"]
    # Two questions in three cells in range and two arms; every second has other words.
    assert judged(summary, "controls_differ") == (
        True,
        "all 12 answers over wrong KV have other logits (by 7.2 or more); other words: "
        "3 of 6 in control-foreign, 3 of 6 in control-corrupt",
    )
    assert judged(summary, "answers_equal") == (True, "all 16 answers equal the recomputed ones")
    assert summary["cells"][0]["first_logits_diff"] == 0.0
    assert summary["cells"][0]["controls"]["control-corrupt"] == {
        "compared": 2,
        "words_differ": 1,
        "smallest_logits_diff": 7.25,
        "planted": "chunk 00 does not match its checksums",
    }
    assert summary["ran"]["prefix_tokens"] == 1036


def test_a_control_that_changes_nothing_fails_the_run(tmp_path: Path) -> None:
    made = run()
    made.row("control-corrupt-2-m1")["first_logits"] = [0.5, -0.25, 1.0]
    summary = summarise(made.write(tmp_path))
    assert summary["verdict"] == "fail"
    assert judged(summary, "controls_differ") == (
        False,
        "1 of 12 answers over wrong KV have the recomputed logits",
    )


@pytest.mark.parametrize(("limit", "ok"), [(0.02, False), (0.005, True), (None, True)])
def test_differing_means_by_more_than_right_answers_may(
    tmp_path: Path, limit: float | None, ok: bool
) -> None:
    made = run(first_logits_within=limit)
    made.row("control-corrupt-2-m1")["first_logits"] = [0.5, -0.24, 1.0]
    assert judged(summarise(made.write(tmp_path)), "controls_differ")[0] is ok


def test_a_control_that_was_not_seen_in_place_proves_nothing(tmp_path: Path) -> None:
    made = run()
    made.cells[1]["planted"] = {"control-corrupt": "ok", "control-foreign": "chunk 1 …"}
    ok, said = judged(summarise(made.write(tmp_path)), "controls_differ")
    assert ok is None and "control-corrupt at" in said


def test_a_control_without_logits_proves_nothing(tmp_path: Path) -> None:
    made = run()
    made.row("control-corrupt-2-m1")["first_logits"] = []
    assert judged(summarise(made.write(tmp_path)), "controls_differ")[0] is None


def test_without_a_recomputed_answer_nothing_is_proved(tmp_path: Path) -> None:
    made = run()
    made.row("recompute-0-m1").update({"status": "error", "error": "gone"})
    assert judged(summarise(made.write(tmp_path)), "controls_differ")[0] is None


def test_a_control_that_was_served_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    made = run()
    made.row("control-foreign-0-m0").update({"source": "none", "cached_tokens": 0})
    ok, said = judged(summarise(made.write(tmp_path)), "arms_as_named")
    assert ok is False and "control-foreign" in said


def test_answers_are_shown_in_words(tmp_path: Path) -> None:
    made = run()
    made.row("remote-hit-2-m1").update({"output_ids": [1], "text": " Timbuktu "})
    first, second = summarise(made.write(tmp_path))["answers"]
    assert (first["question"], first["answer"]) == ("How long?", "answer 0")
    assert [one["same"] for one in first["fetched"]] == [True] * 4
    assert first["controls"]["control-foreign"] == {"cells": 4, "differ": 4, "text": "nonsense"}
    assert second["fetched"][2] == {"km": 100, "same": False, "text": "Timbuktu"}
    assert second["controls"]["control-corrupt"] == {"cells": 4, "differ": 0, "text": None}


def test_drawn_prompts_have_no_words_to_show(tmp_path: Path) -> None:
    assert summarise(Run().write(tmp_path))["answers"] == []
    assert "prompt" not in MANIFEST
