"""``directory-converges``: when all is quiet, does the directory say what is there?

Whatever it names is readable at the site it names, no site that is gone is named, and what a site
has told it of and still has is named. Where sites publish all they have (``drill-begin`` says so)
whatever a site has must be named; where they keep back what nobody used again it may be unknown.
"""

from __future__ import annotations

from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History, held_keys

NAME, INV = "directory-converges", "INV-5"


def check(history: History) -> Finding:
    """Hold the table at the end against what lies at the sites."""
    held = {event["site"]: event for event in history.of("held") if not event.get("error")}
    tables = [event for event in history.of("directory") if not event.get("error")]
    gone = _gone(history)
    named: dict[tuple[str, str], Event] = {}
    for table in tables:
        for key, sites in table["keys"].items():
            named.update({(site, key): table for site in sites})
    offences: list[Offence] = []
    unseen: set[str] = set()
    for (site, key), table in sorted(named.items(), key=lambda item: item[0]):
        if site in held:
            if key not in held_keys(held[site]):
                said = f"the directory names {site} for chunk {key[:12]}…, which is not there"
                offences.append((said, [held[site], table]))
        elif site in gone:
            said = f"the directory names {site} for chunk {key[:12]}…, and {site} is gone"
            offences.append((said, [gone[site], table]))
        else:
            unseen.add(site)
    if tables:
        offences += _missing(history, held, named, tables[-1])
    unknown = ""
    if not tables:
        unknown = "no directory was looked at when all was quiet"
    elif unseen:
        unknown = f"what {', '.join(sorted(unseen))} had at the end is not in the history"
    said = f"all {len(named)} places that the directory names are true, of {len(held)} sites"
    return conclude(NAME, INV, offences, unknown, said)


def _missing(
    history: History,
    held: dict[str, Event],
    named: dict[tuple[str, str], Event],
    table: Event,
) -> list[Offence]:
    """Told, still there, and unknown to the directory."""
    told: dict[tuple[str, str], Event | None] = {}
    for event in history.of("publish", "withdraw", "life"):
        if event["op"] == "life":
            if event.get("phase") in ("killed", "ended"):
                told = {where: by for where, by in told.items() if where[0] != event["site"]}
        else:
            told[event["site"], event["key"]] = event if event["op"] == "publish" else None
    begun = next(history.of("drill-begin"), {})
    offences: list[Offence] = []
    if begun.get("publish") == "all":
        for site, event in sorted(held.items()):
            for key in sorted(held_keys(event)):
                if (site, key) not in named and told.get((site, key)) is None:
                    said = f"{site} has chunk {key[:12]}…, and the directory knows nothing of it"
                    offences.append((said, [begun, event, table]))
    for (site, key), by in sorted(told.items(), key=lambda item: item[0]):
        if by is None or site not in held or (site, key) in named:
            continue
        if key in held_keys(held[site]):
            said = f"{site} has chunk {key[:12]}… and has told so, and the directory knows nothing"
            offences.append((said, [by, held[site], table]))
    return offences


def _gone(history: History) -> dict[str, Event]:
    """Sites whose last life has ended."""
    last: dict[str, Event] = {}
    for event in history.of("life"):
        last[event["site"]] = event
    return {site: event for site, event in last.items() if event["phase"] in ("killed", "ended")}
