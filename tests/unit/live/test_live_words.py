"""Faults as people type them."""

from __future__ import annotations

from typing import Any

import pytest

from geokv.errors import ConfigError
from geokv.live.words import event_kinds, keys_of, parse_fault


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("link-cut a-b for 5s", {"fault": "link-cut", "link": "a-b", "for": "5s"}),
        ("slow-gpu b factor=4", {"fault": "slow-gpu", "site": "b", "factor": 4}),
        ("site-kill b restart 3s", {"fault": "site-kill", "site": "b", "restart": "3s"}),
        (
            "link-degrade a-b loss=1% delay 2ms name=rain",
            {"fault": "link-degrade", "link": "a-b", "loss": "1%", "delay": "2ms", "name": "rain"},
        ),
        (
            "partition groups=[[a],[b,c]] for 1s",
            {"fault": "partition", "groups": [["a"], ["b", "c"]], "for": "1s"},
        ),
        ("incast c from=[a,b] bytes 1GiB",
         {"fault": "incast", "to": "c", "from": ["a", "b"], "bytes": "1GiB"}),
        ("silent-drop from a to b", {"fault": "silent-drop", "from": "a", "to": "b"}),
        ("purge site=a tenant=tenant-0", {"fault": "purge", "site": "a", "tenant": "tenant-0"}),
        ("directory-kill for 1s", {"fault": "directory-kill", "for": "1s"}),
        ("bit-rot b 'tier=disk'", {"fault": "bit-rot", "site": "b", "tier": "disk"}),
    ],
)  # fmt: skip
def test_a_line_is_an_event(text: str, event: dict[str, Any]) -> None:
    assert parse_fault(text) == event


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no fault is called ''"),
        ("link-ct a-b", "did you mean link-cut"),
        ("link-cut a-b c-d", "link-cut: cannot make sense of 'c-d'"),
        ("link-cut a-b for", "link-cut: cannot make sense of 'for'"),
        ("link-cut colour=red", "link-cut: cannot make sense of 'colour=red'"),
        ("link-cut a-b 'for", "No closing quotation"),
    ],
)
def test_what_makes_no_sense_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_fault(text)


def test_every_kind_of_a_timeline_has_keys_and_none_has_promises() -> None:
    kinds = event_kinds()
    assert {"link-cut", "site-kill", "purge", "corrupt-chunk"} <= set(kinds)
    for kind in kinds:
        assert keys_of(kind)[-4:] == ["name", "at", "when", "after"]
        assert "expect" not in keys_of(kind)
    assert keys_of("path-switch")[0] == "link"
