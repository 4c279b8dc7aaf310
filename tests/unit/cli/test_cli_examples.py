"""Every example of every command's help, and every command line of the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_lines import Call, Parser, examples

from geokv.drills.find import find_drills, load_drill
from geokv.engine.models import find as find_model
from geokv.engine.profile import load_profile
from geokv.lab.topology import load_topology
from geokv.live.command import event_by_hand
from geokv.live.words import parse_fault
from geokv.paths import CHECKOUT
from geokv.scenario import load_scenario
from geokv.scenario.seeds import parse_seeds
from geokv.vm.pace import check_pace, parse_pace

PARSER = Parser()
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *(CHECKOUT / "docs").rglob("*.md")]
FENCED = re.compile(r"^```\w*[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
TYPED = re.compile(r"^(?: {4})?(?:\$ )?(geokv .*)$", re.MULTILINE)
"""A command at the beginning of a line of code, or after a prompt."""


def command_lines(page: str) -> list[str]:
    """Lines of a page's code that are commands of ours; those that go on are joined."""
    code = "\n".join([*FENCED.findall(page), *INDENTED.findall(page)])
    return TYPED.findall(code.replace("\\\n", " "))


def run(given: dict[str, Any]) -> None:
    scenario = load_scenario(given["scenario"], list(given["set_"]))
    if given["seeds"] is not None:
        parse_seeds(given["seeds"])
    if given["pace"] is not None:
        check_pace(parse_pace(given["pace"]), scenario.clock)


def drill(given: dict[str, Any]) -> None:
    for path in find_drills(given["names"]):
        load_drill(path, list(given["set_"] or []))


def capture(given: dict[str, Any]) -> None:
    loaded = load_scenario(given["scenario"], list(given["set_"]))
    assert given["link"] in loaded.topology.links


def model(given: dict[str, Any]) -> None:
    assert given["model"] == "geokv-tiny" or find_model(given["model"]) is not None


def serve(given: dict[str, Any]) -> None:
    model(given)
    load_profile(given["stands_for"])


def inject(given: dict[str, Any]) -> None:
    event_by_hand(load_scenario("live"), parse_fault(" ".join(given["fault"])), [])


MEANT: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "run": run,
    "drill": drill,
    "capture": capture,
    "serve": serve,
    "live inject": inject,
    "check": lambda given: load_topology(given["topology"]),
    "model show": model,
    "model fetch": model,
    "profile show": lambda given: load_profile(given["name"]),
}
"""Of commands that are given words of ours: what reads these."""


@pytest.mark.parametrize(("name", "command"), list(PARSER.commands()))
def test_a_commands_examples_are_its_own_and_mean_something(name: str, command: Any) -> None:
    lines = examples(command)
    assert lines, f"geokv {name} --help has no examples"
    for line in lines:
        call = PARSER.read(line)
        assert call.command == name, line
        if name in MEANT:
            MEANT[name](call.params)


def test_nothing_is_meant_that_is_no_command() -> None:
    assert set(MEANT) <= {name for name, _ in PARSER.commands()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_command_lines_of_the_documentation_are_taken(page: Path) -> None:
    for line in command_lines(page.read_text(encoding="utf-8")):
        PARSER.read(line)


def test_the_documentation_has_command_lines() -> None:
    found = [line for page in PAGES for line in command_lines(page.read_text(encoding="utf-8"))]
    assert len(found) > 90
    assert {PARSER.read(line).command for line in found} >= {"run", "drill", "live inject"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("geokv ru smoke", "No such command 'ru'"),
        ("geokv run smoke --pac 1x", "No such option: --pac"),
        ("geokv run smoke link-cut", "unexpected extra argument"),
        ("geokv drill all --lang de", "'de' is not one of"),
        ("geokv run 'smoke", "No closing quotation"),
        ("make check", "not in list"),
    ],
)
def test_what_nobody_can_type_is_found(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PARSER.read(line)


def test_a_line_of_a_shell_is_read_to_the_end_of_the_command() -> None:
    piped = PARSER.read("geokv run smoke --json --quiet | jq .verdict  # or table")
    assert piped == Call("run", {**piped.params, "scenario": "smoke", "json_": True})
    assert PARSER.read('"$(geokv kernel path)" --version').command == "kernel path"
    swept = PARSER.read("geokv run smoke --set sweep.0.values=[0,100] || test $? -eq 2")
    assert swept.params["set_"] == ["sweep.0.values=[0,100]"]


@pytest.mark.parametrize("name", [name for name, _ in PARSER.commands()])
def test_a_paragraph_of_help_fills_any_terminal(name: str) -> None:
    """Line ends of the source are none of the reader's."""
    help_text = dict(PARSER.commands())[name].help
    for paragraph in help_text.split("\n\n"):
        assert "\n" not in paragraph.strip() or paragraph.startswith("  "), paragraph
