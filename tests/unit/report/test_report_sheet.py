"""The sheet of a drill: both languages whole, and everything that happened on it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import fields
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import handwritten_drill
import pytest

from geokv.measure.checker import ON_REQUEST
from geokv.measure.drill.fates import FETCH_FATES, REQUEST_FATES
from geokv.measure.drill.story import stories
from geokv.report.run_folder import read_summary, write_all
from geokv.report.sheet.figures import control_words, verdict_words
from geokv.report.sheet.plot import FATE_MARKS, draw_timeline, nice_step
from geokv.report.sheet.steps import describe, moment
from geokv.report.sheet.words import LANGUAGES, words_of
from geokv.scenario import load_scenario
from geokv.scenario.control import JUDGED
from geokv.scenario.drill import DrillPromises
from geokv.scenario.timeline import OurEvent, Recovery

EN, JA = words_of("en"), words_of("ja")
TABLES = [field.name for field in fields(EN) if field.name != "language"]
KINDS = {
    get_args(model.model_fields["fault"].annotation)[0] for model in get_args(get_args(OurEvent)[0])
}


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = handwritten_drill.Drill().write(tmp_path_factory.mktemp("drill"))
    write_all(run_dir)
    return run_dir


def placeholders(text: Any) -> set[str]:
    texts = text if isinstance(text, tuple) else (text,)
    return {name for one in texts for _, name, _, _ in Formatter().parse(one) if name}


@pytest.mark.parametrize("table", TABLES)
def test_both_languages_have_the_same_words_with_the_same_fields(table: str) -> None:
    english, japanese = getattr(EN, table), getattr(JA, table)
    assert english.keys() == japanese.keys()
    for name, text in english.items():
        assert placeholders(text) == placeholders(japanese[name]), name


def test_a_promise_reads_well_of_one() -> None:
    """Its limit is any number, and no word in front of which it stands has a plural."""
    for text in EN.promises.values():
        assert not re.search(r"\{limit\} \w+s\b", text), text


def test_words_cover_all_there_is_to_say() -> None:
    assert set(EN.faults) == KINDS
    assert set(EN.lines) == {*JUDGED, "fault-fired"}
    assert set(EN.promises) == {*Recovery.model_fields, *DrillPromises.model_fields}
    assert tuple(EN.request_fates) == REQUEST_FATES == tuple(FATE_MARKS)
    assert tuple(EN.fetch_fates) == FETCH_FATES
    assert {f"{span}_within" for span in EN.spans} < set(Recovery.model_fields)


def test_japanese_is_japanese() -> None:
    said = [text for table in TABLES for text in getattr(JA, table).values()]
    flat = [one for text in said for one in (text if isinstance(text, tuple) else (text,))]
    plain = [text for text in flat if text and not re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", text)]
    assert sorted(plain) == ["TTFT(ms)", "{link}: {km} km、{kind}", "–", "–"]


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_sheet_shows_the_whole_drill(drill: Path, language: Any) -> None:
    words = words_of(language)
    text = (drill / f"sheet.{language}.md").read_text(encoding="utf-8")
    assert words.verdicts["pass"][1] in text
    assert f"{words.text['goal']}: Does the arithmetic hold?" in text
    for heading in ("timeline", "setup", "steps", "expected", "control", "fates", "repeat"):
        assert f"## {words.text[heading]}" in text
    # What was planned, when it was really seen, and how.
    assert "1.003\u00a0s" in text and "1.504\u00a0s" in text
    (fault,) = read_summary(drill)["cells"][0]["faults"]
    assert fault["evidence"]["took-effect"] in text
    assert words.promises["first_good_within"].format(name="cut", limit="150 ms") in text
    assert words.promises["misses_at_least"].format(cause="timeout", limit="5") in text
    assert "geokv run ./scenario.yaml" in text
    for name in JUDGED:
        assert (words.lines[name][1] in text) == (name not in ON_REQUEST)


def test_no_control_is_said_to_have_failed_where_there_was_none(drill: Path) -> None:
    summary = read_summary(drill)
    assert verdict_words(summary, EN) == EN.verdicts["pass"]
    summary["expectations"] = [
        line for line in summary["expectations"] if not line["name"].startswith("control:")
    ]
    assert verdict_words(summary, EN) == EN.verdicts["pass-alone"]


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_control_that_broke_its_line_without_its_fault_shows_nothing(
    language: Any, tmp_path: Path
) -> None:
    drill = handwritten_drill.Drill()
    event = drill.of("fault", cell=1, phase="took-effect")[0]
    event.update(phase="did-not-fire", evidence={"said": "the probe came back"})
    summary = write_all(drill.write(tmp_path))
    words = words_of(language)
    text = (tmp_path / f"sheet.{language}.md").read_text(encoding="utf-8")
    assert control_words(summary, words) == words.text["control_open"]
    (row,) = [
        line for line in text.splitlines() if "the control shows nothing" in line and "|" in line
    ]
    assert words.text["control_open"] in row and "the probe came back" in row
    assert words.text["control_fails"] not in text and words.text["control_holds"] not in text


def test_the_page_needs_nothing_else(drill: Path) -> None:
    page = (drill / "sheet.ja.html").read_text(encoding="utf-8")
    assert '<html lang="ja">' in page
    assert page.count("<svg") == 2, "one drawing of the drill, one of its control"
    assert not re.search(r"(?:src|href)=|<script|@import|url\(", page)


def test_what_was_recorded_is_never_mark_up(drill: Path) -> None:
    summary = read_summary(drill)
    summary["warnings"] = ["request <b>r1</b> | failed: `x` *y*"]
    from geokv.report.sheet.content import compose
    from geokv.report.sheet.html import sheet_html
    from geokv.report.sheet.markdown import sheet_markdown
    from geokv.scenario import read_back

    scenario = read_back(drill / "scenario.yaml")
    sheet = compose(summary, scenario, stories(drill), EN)
    assert "&lt;b&gt;r1" in sheet_html(sheet)
    assert "\\<b>r1" in sheet_markdown(sheet) and "\\`x\\` \\*y\\*" in sheet_markdown(sheet)


def test_the_drawing_has_every_request_and_shades_the_fault(drill: Path) -> None:
    (story, control) = stories(drill)
    assert (story.control, control.control) == (False, True)
    assert len(story.asked) == 60
    (fault,) = story.faults
    assert (fault.took_ms, fault.healed_ms) == (1003.0, 1504.0)
    root = ET.fromstring(draw_timeline(story, JA, "title"))
    svg = "{http://www.w3.org/2000/svg}"
    said = [one.text or "" for one in root.iter(f"{svg}title")]
    assert sum(" @ b: " in text for text in said) == 60
    (band,) = [
        one for one in root.iter(f"{svg}rect") if "cut · a-b" in (one.findtext(f"{svg}title") or "")
    ]
    marks = {
        (one.findtext(f"{svg}title") or "").split(" ")[0]: float(one.get("cx") or one.get("x") or 0)
        for one in root.iter()
        if " @ b: " in (one.findtext(f"{svg}title") or "")
    }
    left, width = float(band.get("x") or 0), float(band.get("width") or 0)
    # Asked every 50 ms: the 21st is sent 3 ms before the cut is seen, the 22nd within it.
    assert marks["r20"] < left < marks["r21"] < left + width < marks["r31"]
    texts = [one.text or "" for one in root.iter(f"{svg}text")]
    assert any(JA.text["missed"].format(cause="timeout") == text for text in texts)


def test_requests_without_a_token_have_a_lane_of_their_own(drill: Path) -> None:
    from dataclasses import replace

    (story, _) = stories(drill)
    lost = replace(story.asked[3], ttft_ms=None, ended_ms=None, fate="unanswered")
    hung = replace(story, asked=[*story.asked[:3], lost, *story.asked[4:]])
    assert EN.text["no_answer"] not in draw_timeline(story, EN, "")
    assert EN.text["no_answer"] in draw_timeline(hung, EN, "")


STEPS = [
    ({"fault": "link-cut", "link": "a-b", "at": "1s", "for": "500ms"},
     "a-b is cut, both ways, for 500 ms", "1 s after the first request"),
    ({"fault": "silent-drop", "from": "a", "to": "b", "when": "requests.done >= 20"},
     "packets vanish silently, a → b, until the stream ends", "when 20 requests have ended"),
    ({"fault": "site-kill", "site": "a", "at": "1s", "restart": "300ms", "keep": "disk"},
     "a is killed (kill -9), back after 300 ms with its disk", "1 s after the first request"),
    ({"fault": "link-degrade", "link": "a-b", "at": 0, "rate": "10G", "loss": "0.1%"},
     "a-b gets worse: rate 10 Gb/s, loss 0.1 %, until the stream ends",
     "0 ms after the first request"),
    ({"fault": "partition", "groups": [["a"], ["b"]], "at": "1s", "for": "2s"},
     "a | b cannot reach each other, for 2 s", "1 s after the first request"),
    ({"fault": "link-flap", "link": "a-b", "at": "1s", "times": 20, "down": "20ms", "up": "50ms"},
     "a-b goes down for 20 ms and up for 50 ms, 20 times", "1 s after the first request"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "step", "when"), STEPS)
def test_events_in_words(event: dict[str, Any], step: str, when: str) -> None:
    scenario = load_scenario({**handwritten_drill.SCENARIO, "timeline": [event], "control": None})
    (one,) = scenario.timeline
    assert describe(one, EN) == step
    assert moment(one, EN) == when
    assert describe(one, JA) != step


def test_steps_of_axes() -> None:
    assert [nice_step(rough) for rough in (0.11, 1.0, 3.0, 70.0)] == [0.2, 1.0, 5.0, 100.0]


def test_names_of_faults_do_not_stand_on_each_other(drill: Path) -> None:
    from dataclasses import replace

    (story, _) = stories(drill)
    cut = story.faults[0]
    many = [
        replace(cut, name=f"cut-{n}", took_ms=100.0 + 10 * n, healed_ms=None) for n in range(5)
    ] + [replace(cut, name="late", took_ms=2500.0, healed_ms=2600.0)]
    root = ET.fromstring(draw_timeline(replace(story, faults=many), EN, ""))
    svg = "{http://www.w3.org/2000/svg}"
    named = {
        (one.text or "").split(" ")[0]: one.get("y")
        for one in root.iter(f"{svg}text")
        if " · a-b" in (one.text or "")
    }
    assert len(named) == 6
    assert len({named[f"cut-{n}"] for n in range(5)}) == 5
    assert named["late"] == named["cut-0"], "what comes later has the first row again"
