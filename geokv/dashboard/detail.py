"""One run in full, from what its folder holds: what was built, what it is judged by, its files."""

from __future__ import annotations

from typing import Any

from geokv.dashboard.files import list_files
from geokv.dashboard.head import Head, read_scenario
from geokv.dashboard.reading import Folder, read_json
from geokv.errors import GeokvError
from geokv.lab.profiles import load_profile

_REPORTS = (
    ("report.html", "Report"),
    ("sheet.en.html", "Drill sheet"),
    ("sheet.ja.html", "Sheet in Japanese"),
    ("table.csv", "Table, CSV"),
    ("table.md", "Table, Markdown"),
    ("summary.json", "Summary"),
    ("requests.parquet", "Requests, Parquet"),
    ("history.jsonl", "History"),
    ("scenario.yaml", "Scenario"),
    ("log.txt", "Log"),
)


def detail_of(head: Head, folder: Folder) -> dict[str, Any]:
    """What the page of a run shows beside the run's own steps."""
    scenario = read_scenario(folder) or {}
    manifest = read_json(folder, "manifest.json") or {}
    summary = read_json(folder, "summary.json") or {}
    files = list_files(folder)
    here = {one["path"] for one in files}
    deployment = scenario.get("deployment")
    return {
        **head.to_json(),
        "question": str(scenario.get("question", ""))[:1000],
        "topology": _topology(scenario.get("topology")),
        "has_control": scenario.get("control") is not None,
        "arms": [] if head.drill else _texts(scenario.get("arms")),
        "ran": {
            "model": manifest.get("model"),
            "stands_for": manifest.get("stands_for"),
            "byte_scale": manifest.get("byte_scale"),
            "kernel": manifest.get("kernel"),
            "compute": deployment.get("compute") if isinstance(deployment, dict) else None,
            "scenario_hash": manifest.get("scenario_hash"),
        },
        "reasons": _texts(summary.get("reasons")),
        "warnings": _texts(summary.get("warnings")),
        "judged": _judged(summary.get("expectations")),
        "verdicts": _verdicts(summary.get("cells")),
        "reports": [{"path": path, "title": title} for path, title in _REPORTS if path in here],
        "files": files,
    }


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _judged(value: Any) -> list[dict[str, Any]]:
    return [
        {"name": str(one["name"]), "ok": one["ok"], "said": str(one["said"])}
        for one in (value if isinstance(value, list) else [])
        if isinstance(one, dict) and {"name", "ok", "said"} <= one.keys()
    ]


def _verdicts(cells: Any) -> dict[str, str]:
    """Of a drill: what is said of each cell, by its number."""
    return {
        str(one["cell"]): str(one["verdict"])
        for one in (cells if isinstance(cells, list) else [])
        if isinstance(one, dict) and {"cell", "verdict"} <= one.keys()
    }


def _topology(data: Any) -> dict[str, Any]:
    """Sites, and links with what their profile gives them; rates are before any byte scale."""
    if not isinstance(data, dict):
        return {"name": "", "title": "", "sites": [], "links": []}
    sites = data.get("sites") or {}
    return {
        "name": str(data.get("name", "")),
        "title": str(data.get("title", "")),
        "sites": [
            {"name": str(name), "title": str((site or {}).get("title", ""))}
            for name, site in sites.items()
        ],
        "links": [_link(str(name), link or {}) for name, link in (data.get("links") or {}).items()],
    }


def _link(name: str, link: dict[str, Any]) -> dict[str, Any]:
    kind = str(link.get("kind", "apn"))
    a, _, b = name.partition("-")
    try:
        rate = load_profile(kind).rate.value
    except GeokvError:
        # A run of somebody who has more profiles than are here.
        rate = None
    return {
        "name": name,
        "a": a,
        "b": b,
        "kind": kind,
        "km": link.get("km"),
        "rate_bps": link.get("rate") or rate,
    }
