"""``grafana.json`` against what Grafana's import and its panels ask of a dashboard.

The rules are Grafana's: the schema is that of the packages ``@grafana/schema`` and
``grafana-foundation-sdk`` 11.6, units those of ``@grafana/data`` 11.6, the import that of
``public/app/features/manage-dashboards`` (13.x reads the same).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geokv.report.prometheus import endpoint

BOARD: dict[str, Any] = json.loads(
    (Path(endpoint.__file__).parent / "grafana.json").read_text(encoding="utf-8")
)
PANELS: list[dict[str, Any]] = BOARD["panels"]
VARIABLES: dict[str, dict[str, Any]] = {one["name"]: one for one in BOARD["templating"]["list"]}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"short", "s", "dthms", "reqps", "Bps", "percentunit"}
BUILT_IN = {"__rate_interval", "__range"}


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target


def test_it_can_be_imported_as_it_is() -> None:
    assert BOARD.get("id") is None, "a number is of the Grafana that it was saved in"
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", BOARD["uid"])
    assert BOARD["title"] and all(0 < len(tag) <= 50 for tag in BOARD["tags"])
    # Data sources have a type and a uid since 36; 39 is what Grafana 10.4 writes. A later one
    # brings an older file up to date, an earlier one leaves out what it does not know.
    assert 36 <= BOARD["schemaVersion"] <= 39
    assert re.fullmatch(r"\d+[smhd]", BOARD["refresh"])
    assert {"from", "to"} == set(BOARD["time"])


def test_the_data_source_is_a_choice_on_the_page_and_not_a_question_at_import() -> None:
    """Grafana leaves ``__inputs`` out for what is used through a variable, which it then sets to
    its default Prometheus; ``${DS_…}`` without an input would be a source that is not there."""
    assert "__inputs" not in BOARD and "${DS_" not in json.dumps(BOARD)
    assert next(iter(VARIABLES)) == "datasource", "what others ask comes before them"
    chosen = VARIABLES["datasource"]
    assert (chosen["type"], chosen["query"], chosen["current"]) == ("datasource", "prometheus", {})
    assert VARIABLES["job"]["datasource"] == SOURCE
    (faults,) = BOARD["annotations"]["list"]
    assert faults["datasource"] == faults["target"]["datasource"] == SOURCE
    for panel in PANELS:
        assert panel["datasource"] == SOURCE
    for title, target in targets():
        assert target["datasource"] == SOURCE, title


def test_variables_are_asked_anew_and_may_be_all() -> None:
    job = VARIABLES["job"]
    assert (job["type"], job["refresh"]) == ("query", 2), "when the time range changes"
    assert job["query"]["query"] == job["definition"] == "label_values(geokv_run_info, job)"
    assert job["query"]["qryType"] == 1 and job["query"]["refId"], "1: values of a label"
    assert job["includeAll"] and job["multi"] and job["allValue"] == ".*"
    assert job["current"] == {"text": ["All"], "value": ["$__all"]}


def test_every_variable_of_a_query_is_known() -> None:
    for title, target in targets():
        used = set(re.findall(r"\$\{?(\w+)\}?", target["expr"]))
        assert used <= set(VARIABLES) | BUILT_IN, title
        # Several values are joined as a regular expression.
        assert "$job" not in re.sub(r'job=~"\$job"', "", target["expr"]), title


def test_panels_are_of_kinds_and_units_that_grafana_has() -> None:
    for panel in PANELS:
        assert panel["type"] in {"stat", "timeseries", "state-timeline"}
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in UNITS, panel["title"]
        assert panel["fieldConfig"]["overrides"] == []
        if panel["type"] == "stat":
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]
        if panel["type"] == "state-timeline":
            (mapping,) = defaults["mappings"]
            assert mapping["type"] == "value" and set(mapping["options"]) == {"0", "1"}
            assert all(
                set(one) == {"text", "color", "index"} for one in mapping["options"].values()
            )
        if "stacking" in defaults.get("custom", {}):
            assert panel["title"].startswith("Prompt tokens"), "only what is of one unit adds up"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_queries_ask_at_the_right_steps(panel: dict[str, Any]) -> None:
    names = [target["refId"] for target in panel["targets"]]
    assert names == sorted(set(names))
    for target in panel["targets"]:
        assert target["instant"] != target["range"]
        rates = re.findall(r"(?:rate|increase)\([^\[]*\[([^\]]+)\]", target["expr"])
        assert set(rates) <= {"$__rate_interval"}
        if rates:
            # Its window is four of these steps: a step of one's own has to be that of the reads.
            assert "interval" not in target
        elif target["range"]:
            # Else it is the data source's, 15 s as it comes: longer than most faults.
            assert target["interval"] == "1s"


def test_a_p99_is_of_a_hundred_requests_at_least() -> None:
    """As everywhere else; what a few seconds bring is fewer."""
    tails = [
        target["expr"]
        for panel in PANELS
        for target in panel["targets"]
        if "histogram_quantile(0.99," in target["expr"]
    ]
    assert len(tails) == 1
    assert tails[0].endswith(" >= 100") and "rate(" not in tails[0]


def test_the_verdict_is_one_and_stays() -> None:
    """``running`` was true within any range, too, and a run that is over is read no more."""
    (target,) = next(panel for panel in PANELS if panel["title"] == "Verdict")["targets"]
    assert target["instant"]
    word = r'geokv_run_verdict\{job=~"\$job",verdict'
    over = word + r'!="running"\}'
    assert re.fullmatch(
        rf'last_over_time\({over}\[\$__range\]\) == 1 or {word}="running"\}} == 1', target["expr"]
    )


def test_faults_are_annotations_for_old_and_new_grafanas() -> None:
    """Up to 11 the query is read beside the names, from then on from ``target``."""
    (faults,) = BOARD["annotations"]["list"]
    assert faults["enable"] and re.fullmatch(r"#[0-9a-f]{6}", faults["iconColor"])
    assert faults["target"]["expr"] == faults["expr"] and faults["target"]["refId"] == "Anno"
    assert faults["target"]["interval"] == faults["step"] == "1s"
    assert faults["titleFormat"] == "{{fault}}" and faults["textFormat"] == "{{kind}} {{target}}"


def test_panels_lie_beside_each_other_without_gaps() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        assert panel["title"] and panel["id"] > 0
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert cells and not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells
    assert len(taken) == 24 * (max(y for _, y in taken) + 1)
