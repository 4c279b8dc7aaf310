"""What a timeline does, in words."""

from __future__ import annotations

from typing import Any

from geokv.report.sheet.words import Words
from geokv.scenario.timeline import Event, ForeignFault
from geokv.units import show_size

_SECONDS = ("down", "up", "outage", "window", "delay", "jitter")
_SHARES = ("share", "dram_keep", "loss", "corrupt", "reorder", "duplicate")


def seconds(value: float) -> str:
    """``500 ms``, ``1.2 s``."""
    return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"


def percent(share: float) -> str:
    """``40 %``, ``0.1 %``."""
    return f"{share * 100:g} %"


def describe(event: Event, words: Words, *, lasting: bool = True) -> str:
    """One sentence without a full stop.

    Args:
        lasting: say how long it lasts, too.
    """
    if isinstance(event, ForeignFault):
        where = event.link or event.site or event.tenant
        name = "own_fault_at" if where else "own_fault"
        step = words.text[name].format(fault=event.fault.partition(":")[2], where=where)
        lasting = lasting and event.heals
    else:
        step = words.faults[event.fault].format_map(_fields(event, words))
    if not lasting or "for_" not in type(event).model_fields or event.fault == "link-flap":
        return step
    if event.lasts_s is None:
        return words.text["until_end"].format(step=step)
    return words.text["for"].format(step=step, time=seconds(event.lasts_s))


def moment(event: Event, words: Words) -> str:
    """When an event is due."""
    waits = event.condition
    if waits is None:
        return words.text["at"].format(time=seconds(event.at or 0.0))
    if waits.fault is not None:
        when = words.text[f"when_{waits.state}"].format(fault=waits.fault)
    else:
        when = words.text[f"when_{waits.requests}"].format(count=waits.at_least)
    if not event.after:
        return when
    return words.text["and_after"].format(when=when, time=seconds(event.after))


def _fields(event: Event, words: Words) -> dict[str, Any]:
    data = event.model_dump(by_alias=True)
    shown: dict[str, Any] = {}
    for name, value in data.items():
        if value is None or isinstance(value, dict):
            shown[name] = ""
        elif name in _SECONDS:
            shown[name] = seconds(value)
        elif name in _SHARES:
            shown[name] = percent(value)
        elif name == "groups":
            shown[name] = " | ".join(" ".join(group) for group in value)
        elif name == "bytes":
            shown[name] = show_size(value)
        elif isinstance(value, list):
            shown[name] = ", ".join(value)
        else:
            shown[name] = f"{value:g}" if isinstance(value, float) else str(value)
    shown["direction"] = data.get("direction") or words.text["both_ways"]
    if event.fault == "silent-drop":
        shown["place"] = data.get("link") or f"{data['from']} → {data['to']}"
    if event.fault == "site-kill":
        shown["restart"] = _restart(data, words)
    shown["changes"] = ", ".join(
        phrase.format(value=_change(name, data[name]))
        for name, phrase in words.changes.items()
        if event.fault == "link-degrade" and data.get(name) is not None
    )
    return shown


def _restart(data: dict[str, Any], words: Words) -> str:
    if data["restart"] == "never":
        return ""
    form = words.text["restart_keep" if data["keep"] == "disk" else "restart_after"]
    return form.format(time=seconds(data["restart"]))


def _change(name: str, value: Any) -> str:
    if name == "rate":
        return f"{value / 1e9:g} Gb/s"
    if name in _SECONDS:
        return seconds(value)
    return percent(value) if isinstance(value, float) else ""
