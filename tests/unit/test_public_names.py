"""Every module, and every public class and function of a module, says what it is."""

from __future__ import annotations

import ast
from pathlib import Path

import geokv

ROOT = Path(geokv.__file__).parent


def _undocumented(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    place = str(path.relative_to(ROOT))
    named = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    ]
    silent = [f"{place}: {node.name}" for node in named if not ast.get_docstring(node)]
    return ([] if ast.get_docstring(tree) or not tree.body else [place]) + silent


def test_every_public_name_is_documented() -> None:
    modules = [path for path in ROOT.rglob("*.py") if not path.name.startswith("__main__")]
    assert len(modules) > 500
    assert [line for path in modules for line in _undocumented(path)] == []


def test_a_name_without_words_is_seen(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(__name__ + ".ROOT", tmp_path)
    (tmp_path / "one.py").write_text("def said():\n    'What it is.'\n\nclass Bare: ...\n")
    assert _undocumented(tmp_path / "one.py") == ["one.py", "one.py: Bare"]
