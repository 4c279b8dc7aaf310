"""A scenario as Python code builds and changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from geokv.api.html import facts, page
from geokv.api.naming import plain
from geokv.errors import ConfigError
from geokv.scenario import Scenario as Checked
from geokv.scenario import load_scenario


class Scenario:
    """What to run: checked, and never changed. ``with_`` and ``sweep`` give a new one.

    Args:
        source: the name of a shipped scenario (``"smoke"``), a YAML file, the mapping
            such a file holds, or another ``Scenario``.

    Raises:
        ConfigError: one line per problem, with its path, as ``geokv run`` says it.

    Examples:
        >>> from geokv import Scenario
        >>> near = Scenario("smoke").with_({"links.a-b.rate": "40G"}, seed=7)
        >>> near.sweep("links.a-b.km", [0, 10, 20]).cells[1]
        {'links.a-b.km': 10}
    """

    def __init__(self, source: str | Path | Mapping[str, Any] | Scenario) -> None:
        if isinstance(source, Scenario):
            vars(self).update(vars(source))
            return
        if not isinstance(source, str | Path | Mapping):
            raise ConfigError(
                f"{source!r} is no scenario", "give a name, the path of a YAML file, or a mapping"
            )
        folders: dict[str, None] = {}
        if isinstance(source, Mapping):
            data: str | Path | dict[str, Any] = plain(source, folders)
            if folders and isinstance(data, dict):
                data.setdefault("code", list(folders))
        else:
            data = source
        self._source = data
        self._folder = Path.cwd() if isinstance(data, dict) else None
        self._changes: tuple[tuple[str, Any], ...] = ()
        self._checked = load_scenario(data, folder=self._folder)

    def with_(self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> Scenario:
        """The same scenario with some values changed.

        Args:
            changes: dotted path → value, as ``geokv run --set`` takes them
                (``{"links.a-b.km": 50, "deployment.byte_scale": 16}``); a swept path that is
                set keeps one value. A class stands for its ``module:Class``.
            more: the same for paths without a dot: ``seed=7``.

        Raises:
            ConfigError: a path that does not exist, with the nearest ones that do, or values
                that cannot be.
        """
        changes = {} if changes is None else changes
        if not isinstance(changes, Mapping) or not all(isinstance(path, str) for path in changes):
            raise ConfigError(
                f"with_ takes a mapping of path to value, got {changes!r}",
                'with_({"links.a-b.km": 50}), or with_(seed=7)',
            )
        folders: dict[str, None] = {}
        wanted = [(path, plain(value, folders)) for path, value in {**changes, **more}.items()]
        new = [folder for folder in folders if folder not in self._checked.code]
        if new:
            wanted.append(("code", [*self._checked.code, *new]))
        return self._changed(wanted)

    def sweep(
        self,
        over: str,
        values: Iterable[Any] | Mapping[str, Mapping[str, Any]],
        *,
        out_of_range: Iterable[Any] = (),
    ) -> Scenario:
        """The same scenario with one axis more; an axis of that name is replaced.

        Args:
            over: the path that changes (``"links.a-b.km"``) or, where ``values`` is a mapping,
                what the axis is called.
            values: the values in order; or variant → path → value, which sets several things
                at once.
            out_of_range: values shown beside the others, to which no limit applies.

        Raises:
            ConfigError: nothing is called that, or a value it does not take.
        """
        folders: dict[str, None] = {}
        axis: dict[str, Any]
        if isinstance(values, Mapping):
            axis = {"name": over, "variants": plain(values, folders)}
        else:
            axis = {"path": over, "values": plain(_listed(over, values), folders)}
            if extra := plain(_listed(over, out_of_range), folders):
                axis["out_of_range"] = extra
        kept = [one.model_dump(exclude_defaults=True) for one in self._checked.sweep]
        same = [n for n, one in enumerate(self._checked.sweep) if one.title == over]
        if same:
            kept[same[0]] = axis
        else:
            kept.append(axis)
        wanted: list[tuple[str, Any]] = []
        if folders:
            wanted.append(("code", list(dict.fromkeys([*self._checked.code, *folders]))))
        return self._changed([*wanted, ("sweep", kept)])

    def _changed(self, wanted: list[tuple[str, Any]]) -> Scenario:
        new = object.__new__(type(self))
        new._source, new._folder = self._source, self._folder
        new._changes = (*self._changes, *wanted)
        new._checked = load_scenario(new._source, changes=new._changes, folder=new._folder)
        return new

    @property
    def name(self) -> str:
        """What its run folders are called after."""
        return self._checked.name

    @property
    def title(self) -> str:
        """Its heading."""
        return self._checked.title

    @property
    def question(self) -> str:
        """What its run answers, in one sentence."""
        return self._checked.question

    @property
    def hash(self) -> str:
        """Of the resolved scenario, 32 hex digits; equal set-ups have equal hashes."""
        return self._checked.hash

    @property
    def is_drill(self) -> bool:
        """Whether it has a stream of requests, faults and checkers, and not arms."""
        return self._checked.is_drill

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The settings of every cell, in the order they are run; a drill's control has
        ``{"control": True}`` beside."""
        return [
            {**cell.settings, **({"control": True} if cell.control else {})}
            for cell in self._checked.cells()
        ]

    @property
    def checked(self) -> Checked:
        """The strict model, with everything in it resolved: ``checked.deployment.byte_scale``."""
        return self._checked

    def to_yaml(self) -> str:
        """The resolved scenario as a file for ``geokv run``."""
        return self._checked.to_yaml()

    def save(self, path: str | Path) -> Path:
        """Write ``to_yaml()`` to a file; returns its path.

        Raises:
            ConfigError: it cannot be written.
        """
        path = Path(path)
        try:
            path.write_text(self.to_yaml(), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
        return path

    def __eq__(self, other: object) -> bool:
        """Equal when they would run the same."""
        if not isinstance(other, Scenario):
            return NotImplemented
        return self._checked.resolved() == other._checked.resolved()

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        return f"<Scenario {self.name}: {self._size()}>"

    def _repr_html_(self) -> str:
        """For notebooks: title, question and what it consists of."""
        return page(self.title, self.question, facts(self._rows()))

    def _size(self) -> str:
        scenario = self._checked
        parts = [f"{len(self.cells)} cells"]
        parts.append("drill" if scenario.is_drill else f"{len(scenario.arms)} arms")
        return ", ".join([*parts, f"{scenario.workload.requests} requests each"])

    def _rows(self) -> dict[str, str]:
        scenario = self._checked
        topology = scenario.topology
        rows = {
            "name": scenario.name,
            "size": self._size(),
            "sites": ", ".join(topology.sites),
            "links": ", ".join(
                f"{name} {link.km:g} km, {link.kind}" for name, link in topology.links.items()
            ),
            "stands for": f"{scenario.deployment.stands_for}, S = {scenario.deployment.byte_scale}",
            "workload": scenario.workload.kind,
        }
        for axis in scenario.sweep:
            rows[f"sweep {axis.title}"] = ", ".join(str(point.shown) for point in axis.points())
        if scenario.timeline:
            rows["timeline"] = ", ".join(event.title for event in scenario.timeline)
        rows["clock, seed"] = f"{scenario.clock}, {scenario.seed}"
        return rows


def _listed(over: str, values: Iterable[Any]) -> list[Any]:
    try:
        each = None if isinstance(values, str) else iter(values)
    except TypeError:
        each = None
    if each is None:
        raise ConfigError(
            f"sweep {over}: must be a list of values, got {values!r}",
            f"one value alone is with_({{{over!r}: {values!r}}})",
        )
    return list(each)
