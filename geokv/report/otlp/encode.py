"""One request as an OTLP trace, in the JSON encoding of the protocol.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: names in lowerCamelCase, ids of
traces and spans in hex, enums as numbers, 64-bit integers as strings. Attributes that mean what
the GenAI conventions mean have their names (``gen_ai.…``); the rest is ``geokv.…``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from geokv import __version__
from geokv.report.otlp.asked import Asked, Moment, Piece
from geokv.scenario import Scenario

_INTERNAL, _CLIENT = 1, 3
_OK, _ERROR = 1, 2
_STANDARD = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
_OF_A_SPAN = {
    "fetch": ("chunks_remote", "wire_bytes"),
    "load": ("chunks_remote", "chunks_local"),
    "prefill": ("prompt_tokens", "cached_tokens"),
    "decode": ("output_tokens",),
}
"""Span → the figures that explain its length."""

SPANS_A_MESSAGE = 500
"""At some 900 bytes each this keeps a line under the 1 MiB at which collectors cut it in two
(``max_log_size`` of their file receivers)."""

Json = dict[str, Any]


def trace_of(scenario: Scenario, asked: Asked, zero_ns: int) -> list[Json]:
    """``ExportTraceServiceRequest``s: the client's span, the site's that tile it, and those of
    single chunks. There is one, unless the chunks are very many.

    Ids follow from the scenario's hash, the cell and the request: equal runs give equal traces.
    A span of length 0 is a step that did not happen, and is left out. So is what sites noted
    after the client had ended: no event of a span lies outside of it.

    Args:
        zero_ns: nanoseconds since 1970 at which the lab's clock stood at 0.
    """
    trace = _digest(16, scenario.hash, asked.cell.index, asked.request_id)
    root = _span(asked, trace, asked.name, None, asked.sent_ns, asked.done_ns, zero_ns)
    seen = [one for one in asked.moments if asked.sent_ns <= one.t_ns <= asked.done_ns]
    root |= {
        "kind": _CLIENT,
        "attributes": _attributes(_of_the_request(scenario, asked)),
        "events": [_event(one, zero_ns) for one in sorted(seen, key=lambda one: one.t_ns)],
        "status": {"code": _ERROR, "message": asked.error} if asked.error else {"code": _OK},
    }
    spans, at_ns = [], asked.sent_ns
    for name, length_ns in _steps(asked).items():
        if length_ns:
            span = _span(asked, trace, name, root["spanId"], at_ns, at_ns + length_ns, zero_ns)
            span["attributes"] = _attributes(_of_a_span(asked, name))
            spans.append(span)
        at_ns += length_ns
    for number, piece in enumerate(asked.pieces):
        spans.append(_piece(asked, trace, root["spanId"], number, piece, zero_ns))
    groups = [_resource(scenario, f"client-{asked.site}", [root])]
    for first in range(0, len(spans), SPANS_A_MESSAGE):
        some = spans[first : first + SPANS_A_MESSAGE]
        groups.append(_resource(scenario, f"site-{asked.site}", some))
    return [{"resourceSpans": groups[:2]}, *({"resourceSpans": [one]} for one in groups[2:])]


def _steps(asked: Asked) -> dict[str, int]:
    """All spans of a request to its end, ns."""
    if asked.first_ns is None or not asked.spans_ns:
        return {}
    return {**asked.spans_ns, "decode": asked.done_ns - asked.first_ns}


def _span(
    asked: Asked, trace: str, name: str, parent: str | None, from_ns: int, to_ns: int, zero_ns: int
) -> Json:
    return {
        "traceId": trace,
        "spanId": _digest(8, trace, name if parent else "request"),
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(zero_ns + from_ns),
        "endTimeUnixNano": str(zero_ns + to_ns),
    }


def _piece(asked: Asked, trace: str, root: str, number: int, piece: Piece, zero_ns: int) -> Json:
    """A chunk on its way, from asking to being verified; many are under way at once.

    One that was still under way when its request ended is ``late``: its span, and no other, ends
    after its parent.
    """
    from_ns, to_ns = piece.asked_ns, piece.verified_ns
    span = _span(asked, trace, f"chunk {number}", root, from_ns, to_ns, zero_ns)
    said = {f"geokv.{key}": value for key, value in piece.data.items() if value != ""}
    return span | {
        "name": "chunk",
        "kind": _CLIENT,
        "attributes": _attributes(said | ({"geokv.late": True} if to_ns > asked.done_ns else {})),
        "events": [
            {"timeUnixNano": str(zero_ns + t_ns), "name": name}
            for name, t_ns in (
                ("first byte", piece.first_byte_ns),
                ("last byte", piece.last_byte_ns),
            )
        ],
    }


def _resource(scenario: Scenario, service: str, spans: list[Json]) -> Json:
    deployment = scenario.deployment
    about = {
        "service.name": service,
        "service.namespace": "geokv",
        "service.version": __version__,
        "geokv.scenario": scenario.name,
        "geokv.scenario_hash": scenario.hash,
        "geokv.seed": scenario.seed,
        "geokv.clock": scenario.clock,
        "geokv.stands_for": deployment.stands_for,
        "geokv.byte_scale": deployment.byte_scale,
    }
    scope = {"name": "geokv", "version": __version__}
    return {
        "resource": {"attributes": _attributes(about)},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }


def _of_the_request(scenario: Scenario, asked: Asked) -> Json:
    cell = asked.cell
    own: Json = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.model": scenario.deployment.model,
        "geokv.request_id": asked.request_id,
        "geokv.cell": cell.index,
        "geokv.cell_label": cell.label,
        "geokv.control": cell.control is not None,
        "geokv.links": asked.links,
        **{f"geokv.setting.{title}": value for title, value in cell.settings.items()},
    }
    if asked.first_ns is not None:
        own["geokv.ttft_ns"] = asked.first_ns - asked.sent_ns
    for name, value in asked.data.items():
        if name != "misses":
            own[_STANDARD.get(name, f"geokv.{name}")] = value
    return own | {f"geokv.misses.{cause}": n for cause, n in asked.data["misses"].items()}


def _of_a_span(asked: Asked, name: str) -> Json:
    own = {f"geokv.{figure}": asked.data[figure] for figure in _OF_A_SPAN.get(name, ())}
    if name == "fetch":
        own["geokv.links"] = asked.links
    return own


def _event(moment: Moment, zero_ns: int) -> Json:
    return {
        "timeUnixNano": str(zero_ns + moment.t_ns),
        "name": moment.name,
        "attributes": _attributes({f"geokv.{key}": value for key, value in moment.data.items()}),
    }


def _attributes(values: Mapping[str, Any]) -> list[Json]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> Json:
    # A bool is an int in Python, so it comes first.
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


def _digest(length_bytes: int, *parts: object) -> str:
    """Hex of a hash of all parts; never all zeros, which no id may be."""
    text = "\x00".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=length_bytes).hexdigest()
