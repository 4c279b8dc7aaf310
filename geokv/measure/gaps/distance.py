"""Reuse distances: how many different things were touched since this one last was."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def reuse_distances(accesses: Sequence[Hashable]) -> list[int | None]:
    """Of each access the number of *different* others since the last of the same; None for a
    first one. An LRU cache of d + 1 places hits every access of distance at most d.

    R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9
    (1970): stack distance, here counted from 0; found with a Fenwick tree in O(n log n).
    """
    tree = [0] * (len(accesses) + 1)
    last: dict[Hashable, int] = {}
    found: list[int | None] = []
    for place, what in enumerate(accesses):
        before = last.get(what)
        if before is None:
            found.append(None)
        else:
            # Latest accesses that lie after ``before``: one for each different thing.
            found.append(len(last) - _sum(tree, before + 1))
            _add(tree, before, -1)
        last[what] = place
        _add(tree, place, 1)
    return found


def _add(tree: list[int], place: int, value: int) -> None:
    place += 1
    while place < len(tree):
        tree[place] += value
        place += place & -place


def _sum(tree: list[int], count: int) -> int:
    """Of the first ``count`` places."""
    total = 0
    while count > 0:
        total += tree[count]
        count -= count & -count
    return total
