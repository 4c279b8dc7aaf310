"""From a name, a path or a mapping to a checked ``Scenario``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geokv import foreign
from geokv.config import load_yaml, validate
from geokv.errors import ConfigError
from geokv.lab.profiles import data_folders
from geokv.lab.topology import Topology, load_topology
from geokv.scenario.cells import topology_mapping
from geokv.scenario.checks import untested
from geokv.scenario.code import with_code, with_homes
from geokv.scenario.model import Scenario, hash_of
from geokv.scenario.paths import known_paths, parse_override, suggest, with_value
from geokv.scenario.texts import with_texts
from geokv.scenario.timeline.chaos import with_random


def find(name_or_path: str | Path) -> Path:
    """The file of a scenario: a path as it is, a name from ``scenarios/`` or its drills.

    Names are looked up beside the package first, then in the working directory.

    Raises:
        ConfigError: nothing there; the hint lists the names that exist.
    """
    text = str(name_or_path)
    if "/" in text or text.endswith((".yaml", ".yml")):
        path = Path(text)
        if path.is_file():
            return path
        name = path.stem
    else:
        name = text
        for folder in _folders():
            if (folder / f"{name}.yaml").is_file():
                return folder / f"{name}.yaml"
    names = sorted({path.stem for folder in _folders() for path in folder.glob("*.yaml")})
    raise ConfigError(
        f"no scenario {text!r}{suggest(name, names)}",
        f"known scenarios: {', '.join(names) or 'none'}; or give the path of a YAML file",
    )


def _folders() -> list[Path]:
    return [*data_folders("scenarios"), *data_folders("scenarios", "drills")]


def load_scenario(
    source: str | Path | dict[str, Any],
    overrides: list[str] | None = None,
    changes: Sequence[tuple[str, Any]] = (),
    folder: Path | None = None,
) -> Scenario:
    """Read, override, resolve and check a scenario, every cell of its sweep included.

    Args:
        source: name, path, or the mapping itself.
        overrides: ``path=value`` each. A swept path that is set keeps one value.
        changes: the same after them, as paths and values.
        folder: of a mapping: where the files it names are looked for.

    Raises:
        ConfigError: one line per problem, each with its path, and with the file where nothing was
            set or the file as written is wrong.
    """
    if isinstance(source, dict):
        place, data = "", source
    else:
        path = find(source)
        place, folder, data = str(path), path.parent, load_yaml(path)
    wanted = [
        (f"--set {name}", name, value) for name, value in map(parse_override, overrides or [])
    ]
    wanted += [(name, name, value) for name, value in changes]
    pinned = any(name.split(".")[0] == "sweep" for _, name, _ in wanted)
    if wanted:
        known = _known(_build(data, folder, place), data)
        place = ""  # what is wrong now was set, and is not in the file
        for said, name, value in wanted:
            if name not in known:
                raise ConfigError(f"{said}: nothing is called that{suggest(name, known)}")
            if name.startswith(("links.", "sites.")):
                data = _inline(data, folder, place)
            data, was_swept = _pin(with_value(data, name, value), name, value)
            pinned = pinned or was_swept
    scenario = _build(with_code(_absolute_model(data), folder), folder, place)
    _check_model_folder(scenario, place)
    scenario = _with_code(scenario, place)
    # Whoever narrows a sweep by hand still gets a run; what it cannot test is then
    # reported as untested, and such a run does not pass.
    left = [] if pinned else untested(scenario)
    if left:
        raise _placed(ConfigError("\n".join(left)), place)
    return scenario


def read_back(path: Path) -> Scenario:
    """The scenario a run folder keeps, with only the checks that do not need this machine.

    Raises:
        ConfigError: not the resolved form of a scenario.
    """
    return _build(load_yaml(path), path.parent, str(path))


def hash_as_written(path: Path) -> str:
    """``Scenario.hash`` as it was when a run folder's scenario was written: of the keys that it
    has. A version that knows more of them fills in their defaults, and reads the same run.

    Raises:
        ConfigError: not a mapping in YAML.
    """
    return hash_of(load_yaml(path))


def _known(scenario: Scenario, data: dict[str, Any]) -> list[str]:
    """What can be set. A timeline that is partly drawn is known as it was written: a fault that
    was drawn has no place of its own in the file."""
    whole = scenario.model_dump(mode="json", by_alias=True)
    written = data.get("timeline") or []
    if any("random" in event for event in written):
        whole["timeline"] = written
    return list(known_paths(whole))


def _build(data: dict[str, Any], folder: Path | None, place: str) -> Scenario:
    topology = data.get("topology")
    if topology is not None:
        # Built by itself, so that a link's path is links.a-b.km, as the user names it.
        data = {**data, "topology": _topology(topology, folder, place)}
    try:
        return validate(Scenario, with_texts(with_random(data, data.get("topology")), folder))
    except ConfigError as error:
        raise _placed(error, place) from None


def _topology(topology: Any, folder: Path | None, place: str) -> Topology:
    try:
        if isinstance(topology, str):
            beside = folder / topology if folder else None
            return load_topology(beside if beside and beside.is_file() else topology)
        return validate(Topology, topology)
    except ConfigError as error:
        raise _placed(error, place) from None


def _placed(error: ConfigError, place: str) -> ConfigError:
    if not place:
        return error
    lines = [f"{place}: {line}" for line in error.message.split("\n")]
    return ConfigError("\n".join(lines), error.hint)


def _inline(data: dict[str, Any], folder: Path | None, place: str) -> dict[str, Any]:
    if not isinstance(data.get("topology"), str):
        return data
    topology = _topology(data["topology"], folder, place)
    return {**data, "topology": topology_mapping(topology)}


def _pin(data: dict[str, Any], name: str, value: Any) -> tuple[dict[str, Any], bool]:
    axes = data.get("sweep")
    if not isinstance(axes, list) or not any(
        isinstance(axis, dict) and axis.get("path") == name for axis in axes
    ):
        return data, False
    pinned = []
    for axis in axes:
        if isinstance(axis, dict) and axis.get("path") == name:
            out = value in (axis.get("out_of_range") or [])
            axis = {"path": name, "values": [value]}
            # An out-of-range value stays marked when it is the only one left.
            if out:
                axis = {"path": name, "values": [], "out_of_range": [value]}
        pinned.append(axis)
    return {**data, "sweep": pinned}, True


def _absolute_model(data: dict[str, Any]) -> dict[str, Any]:
    """A model folder's whole path: whoever runs the scenario works in another folder."""
    deployment = data.get("deployment")
    model = deployment.get("model") if isinstance(deployment, dict) else None
    if not isinstance(model, str) or "/" not in model:
        return data
    path = str(Path(model).expanduser().absolute())
    return {**data, "deployment": {**data["deployment"], "model": path}}


def _check_model_folder(scenario: Scenario, place: str) -> None:
    model = scenario.deployment.model
    if "/" in model and not Path(model).is_dir():
        error = ConfigError(
            f"deployment.model: no such folder {model}",
            "a model folder holds config.json, tokenizer.json and *.safetensors",
        )
        raise _placed(error, place)


def _with_code(scenario: Scenario, place: str) -> Scenario:
    try:
        for folder in scenario.code:
            foreign.check_folder(folder)
        return with_homes(scenario)
    except ConfigError as error:
        raise _placed(error, place) from None
