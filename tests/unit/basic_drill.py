"""The smallest drill: one door, one provider, a link between them, nothing that goes wrong."""

from __future__ import annotations

from typing import Any

BASIC: dict[str, Any] = {
    "name": "drill",
    "title": "Drill",
    "question": "Does it hold?",
    "topology": "pair",
    "deployment": {"content": "synthetic"},
    "cache": {"directory": {"kind": "central", "site": "a"}},
    "workload": {"kind": "stream", "askers": {"b": 1}, "providers": ["a"]},
}
