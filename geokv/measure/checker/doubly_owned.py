"""``doubly-owned``: did anything belong to two at once?

* Two chunks lay in one place of a tier at the same time.
* A place was given to another chunk, or given up for want of room, while its chunk was still being
  sent or handed to an engine: whoever reads holds a pin, and a pin is an owner.
"""

from __future__ import annotations

from geokv.measure.checker.copies import Copies, Filling, followed
from geokv.measure.checker.finding import Finding, Offence, conclude
from geokv.measure.checker.history import Event, History, handed_over

NAME, INV = "doubly-owned", "INV-5"
_Place = tuple[str, str, int]


def check(history: History) -> Finding:
    """Follow every place of every tier through its owners."""
    owners: dict[_Place, Filling] = {}
    offences: list[Offence] = []
    examined = placeless = 0
    for event, copies, filling in followed(history, "use", "serve"):
        if filling is not None and filling.place is None:
            placeless += 1
        elif filling is not None and filling.place is not None:
            examined += 1
            where = (filling.site, filling.tier, filling.place)
            owner = owners.get(where)
            if owner is not None and owner.ended is None and owner.key != filling.key:
                said = (
                    f"place {filling.place} of {filling.tier} at {filling.site} was given to "
                    f"chunk {filling.key[:12]}… while chunk {owner.key[:12]}… lay there"
                )
                offences.append((said, [owner.event, filling.event]))
            owners[where] = filling
        elif handed_over(event):
            offences += _taken_away(event, copies, owners)
    unknown = "" if examined else f"none of {placeless} stored chunks has a place in the history"
    if not examined and not placeless:
        unknown = "nothing was stored"
    said = f"each of {examined} chunks had its place to itself, and kept it while it was read"
    return conclude(NAME, INV, offences, unknown, said)


def _taken_away(event: Event, copies: Copies, owners: dict[_Place, Filling]) -> list[Offence]:
    """The reader's pin ends with this event; what became of the place while it held?"""
    read = _read(event, copies)
    if read is None or read.ended is None or read.place is None:
        return []
    now = owners.get((read.site, read.tier, read.place))
    did = "read" if event["op"] == "use" else "sent"
    if now is not None and now is not read and now.key != read.key:
        said = (
            f"place {read.place} at {read.site} was given to chunk {now.key[:12]}… while chunk "
            f"{read.key[:12]}… was being {did}"
        )
        return [(said, [read.event, read.ended, now.event, event])]
    if read.ended["op"] == "evict":
        said = f"chunk {read.key[:12]}… was evicted at {read.site} while it was being {did}"
        return [(said, [read.event, read.ended, event])]
    return []


def _read(event: Event, copies: Copies) -> Filling | None:
    """The filling of this site's DRAM that was read: of several of one key the last that fits
    what the event says of it."""
    fillings = copies.all(event["site"], event["key"])
    for filling in reversed(fillings):
        known = filling.event.get("generation") if event["op"] == "use" else filling.generation
        if known is None or event.get("generation") in (None, known):
            return filling
    return None
