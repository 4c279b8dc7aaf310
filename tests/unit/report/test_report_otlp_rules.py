"""What readers of OTLP files hold against them, each rule on the JSON as it is written.

Encoding: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding. Files:
https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/. What Jaeger does with an upload:
``packages/jaeger-ui/src/utils/readJsonFile.tsx`` and ``src/model/transform-trace-data.tsx`` of
jaeger-ui. What a collector takes for a line: ``receiver/otlpjsonfilereceiver`` and
``pkg/stanza/fileconsumer`` of opentelemetry-collector-contrib.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from otlp_drill import drill_folder
from otlp_reader import read_otlp, spans_of

from geokv.report.otlp.asked import Asked, Moment, Piece, asked_in
from geokv.report.otlp.encode import SPANS_A_MESSAGE, trace_of
from geokv.report.otlp.write import write_otlp

Json = dict[str, Any]
LONGEST_LINE = 1024 * 1024
"""``max_log_size`` of a collector, as it comes."""
MS = 1_000_000


@pytest.fixture(params=["measured", "drill"])
def path(request: pytest.FixtureRequest, run_dir: Path, tmp_path: Path) -> Path:
    """What is written of a run of either kind."""
    written = tmp_path / "trace.json"
    write_otlp(run_dir if request.param == "measured" else drill_folder(tmp_path), written)
    return written


def messages(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def spans(found: list[Json]) -> Iterator[Json]:
    for message in found:
        for resource in message["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                yield from scope["spans"]


def families(found: list[Json]) -> dict[str, list[Json]]:
    """Trace → its spans."""
    by_trace: dict[str, list[Json]] = defaultdict(list)
    for span in spans(found):
        by_trace[span["traceId"]].append(span)
    assert by_trace
    return by_trace


def times(span: Json) -> tuple[int, int]:
    return int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])


def flags(span: Json) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span.get("attributes", [])}


def objects(value: Any) -> Iterator[Json]:
    """Every JSON object within."""
    if isinstance(value, dict):
        yield value
        for one in value.values():
            yield from objects(one)
    elif isinstance(value, list):
        for one in value:
            yield from objects(one)


def test_a_file_is_json_lines_of_nothing_but_traces(path: Path) -> None:
    raw = path.read_bytes()
    assert raw.endswith(b"}\n") and b"\r" not in raw and not raw.startswith(b"\xef\xbb\xbf")

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    for line in raw.decode("utf-8").splitlines():
        assert set(json.loads(line, parse_constant=refuse)) == {"resourceSpans"}
        assert len(line) < LONGEST_LINE


def test_ids_are_hex_of_32_and_16_digits_and_name_one_span(path: Path) -> None:
    seen = set()
    for trace, family in families(messages(path)).items():
        assert re.fullmatch("[0-9a-f]{32}", trace) and int(trace, 16)
        for span in family:
            assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and int(span["spanId"], 16)
            seen.add(span["spanId"])
    # Jaeger renames the second of two.
    assert len(seen) == len(list(spans(messages(path))))


def test_64_bit_numbers_are_strings_and_enums_are_numbers(path: Path) -> None:
    for one in objects(messages(path)):
        for key, value in one.items():
            assert re.fullmatch("[a-z][a-zA-Z]*", key), "names are in lowerCamelCase"
            if key.endswith("UnixNano") or key == "intValue":
                assert isinstance(value, str) and re.fullmatch("-?[0-9]+", value)
                assert -(2**63) <= int(value) < 2**63
            if key in ("kind", "code"):
                assert type(value) is int
    assert {span["kind"] for span in spans(messages(path))} <= {1, 3}, "internal, client"


def test_attributes_have_one_value_and_no_name_twice(path: Path) -> None:
    """Jaeger warns of what is said twice; a value without a type is nothing at all."""
    for one in objects(messages(path)):
        named = [each["key"] for each in one.get("attributes", [])]
        assert len(named) == len(set(named))
        for each in one.get("attributes", []):
            assert set(each) == {"key", "value"} and len(each["value"]) == 1
            (kind,) = each["value"]
            assert kind in ("stringValue", "boolValue", "intValue", "doubleValue", "arrayValue")
            assert each["value"][kind] is not None


def test_every_span_has_a_service_and_a_scope(path: Path) -> None:
    for message in messages(path):
        for resource in message["resourceSpans"]:
            assert flags(resource["resource"])["service.name"]
            (scope,) = resource["scopeSpans"]
            assert scope["scope"]["name"] == "geokv" and scope["scope"]["version"]


def test_a_trace_has_one_root_that_is_the_client_and_everybody_else_a_parent(path: Path) -> None:
    for family in families(messages(path)).values():
        (root,) = [span for span in family if "parentSpanId" not in span]
        assert root["kind"] == 3 and root["status"]["code"] in (1, 2)
        assert ("message" in root["status"]) == (root["status"]["code"] == 2)
        known = {span["spanId"] for span in family}
        assert all(span["parentSpanId"] in known for span in family if span is not root)


def test_times_run_forward_and_children_and_events_lie_within(path: Path) -> None:
    for family in families(messages(path)).values():
        by_id = {span["spanId"]: span for span in family}
        for span in family:
            start, end = times(span)
            # Jaeger counts µs, and leaves out what begins at 0.
            assert 1000 <= start <= end
            for event in span.get("events", []):
                assert event["name"] and start <= int(event["timeUnixNano"]) <= end
            if "parentSpanId" in span:
                first, last = times(by_id[span["parentSpanId"]])
                assert first <= start and end <= last


# -- what hardly ever happens ------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Asked], list[Json]]:
    """Writes one request as the drill of the other tests has it."""
    scenario, _ = asked_in(drill_folder(tmp_path))

    def write(asked: Asked) -> list[Json]:
        path = tmp_path / "one.json"
        lines = [json.dumps(message) for message in trace_of(scenario, asked, 10**18)]
        path.write_text("".join(line + "\n" for line in lines))
        assert all(len(line) < LONGEST_LINE for line in lines)
        # The protocol's own messages take it, too.
        assert sum(len(spans_of(message)) for message in read_otlp(path)) == len(
            list(spans(messages(path)))
        )
        return messages(path)

    return write


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """A request of 40 ms with one chunk."""
    _, rows = asked_in(drill_folder(tmp_path / "again"))
    one = next(row for row in rows if row.pieces)
    sent_ns = one.sent_ns
    data = {"site": "b", "key": "ab" * 16, "source": "a", "cause": "", "index": 0, "bytes": 4096}
    piece = Piece(sent_ns + MS, sent_ns + 2 * MS, sent_ns + 3 * MS, sent_ns + 4 * MS, data)
    return replace(one, done_ns=sent_ns + 40 * MS, moments=[], pieces=[piece])


def test_a_chunk_that_comes_too_late_says_so(
    asked: Asked, written: Callable[[Asked], list[Json]]
) -> None:
    """Its request has gone on without it; OpenTelemetry lets a child outlive its parent."""
    slow = replace(asked.pieces[0], verified_ns=asked.done_ns + MS)
    found = [
        span
        for span in spans(written(replace(asked, pieces=[asked.pieces[0], slow])))
        if span["name"] == "chunk"
    ]
    assert [flags(span).get("geokv.late") for span in found] == [None, True]
    assert times(found[1])[1] == 10**18 + asked.done_ns + MS
    assert "geokv.cause" not in flags(found[0]), "nothing went wrong"


def test_what_is_noted_after_the_end_is_no_event_of_it(
    asked: Asked, written: Callable[[Asked], list[Json]]
) -> None:
    inside = Moment(asked.done_ns, "miss", {"cause": "timeout"})
    outside = Moment(asked.done_ns + 1, "fetch", {"cause": "cancelled"})
    root = next(spans(written(replace(asked, moments=[outside, inside]))))
    assert [event["name"] for event in root["events"]] == ["miss"]


def test_a_trace_of_very_many_chunks_is_several_lines(
    asked: Asked, written: Callable[[Asked], list[Json]]
) -> None:
    many = replace(asked, pieces=asked.pieces * 4096)
    found = written(many)
    assert len(found) == 1 + 4096 // SPANS_A_MESSAGE
    (family,) = families(found).values()
    assert len({span["spanId"] for span in family}) == len(family) > 4096
    services = [
        flags(resource["resource"])["service.name"]
        for message in found
        for resource in message["resourceSpans"]
    ]
    assert services == [f"client-{asked.site}"] + [f"site-{asked.site}"] * len(found)
