"""Reads an OTLP file as a collector does: with the protocol's own messages, and strictly."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_IDS = ("traceId", "spanId", "parentSpanId")


def read_otlp(path: Path) -> list[ExportTraceServiceRequest]:
    """A message per line. Unknown fields, wrong types and ids of another length are errors."""
    return [_message(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def spans_of(trace: ExportTraceServiceRequest) -> list[tuple[str, Span]]:
    """(service, span), in order."""
    return [
        (attributes(resource.resource)["service.name"], span)
        for resource in trace.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes(owner: Any) -> dict[str, Any]:
    """Attributes of a resource, a span or an event as plain values; a key twice is an error."""
    found = {one.key: _plain(one.value) for one in owner.attributes}
    assert len(found) == len(owner.attributes)
    return found


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(one) for one in value.array_value.values]
    return getattr(value, kind)


def _message(data: dict[str, Any]) -> ExportTraceServiceRequest:
    """Protobuf's own JSON has ids in base64, OTLP's in hex: that is the one difference."""
    for resource in data["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in _IDS:
                    if name in span:
                        raw = bytes.fromhex(span[name])
                        assert len(raw) == (16 if name == "traceId" else 8)
                        assert any(raw)
                        span[name] = base64.b64encode(raw).decode()
    message = ExportTraceServiceRequest()
    json_format.ParseDict(data, message, ignore_unknown_fields=False)
    return message
