"""Every module, every public class and function of a module, and every public method says what it
is. Of a method it may be said by a base class, or by a protocol all of whose methods its class has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import geokv

ROOT = Path(geokv.__file__).parent

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Names:
    """What all modules below a folder define, as far as it has a public name."""

    def __init__(self, root: Path) -> None:
        self.modules = {
            str(path.relative_to(root)): ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(root.rglob("*.py"))
            if not path.name.startswith("__main__")
        }
        self.classes: dict[str, list[ast.ClassDef]] = {}
        for tree in self.modules.values():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, []).append(node)
        self.protocols = [
            one
            for same in self.classes.values()
            for one in same
            if "Protocol" in map(ast.unparse, one.bases)
        ]

    def undocumented(self) -> Iterator[str]:
        """Places of what says nothing of itself."""
        for place, tree in self.modules.items():
            if tree.body and not ast.get_docstring(tree):
                yield place
            for node in tree.body:
                if not isinstance(node, ast.ClassDef | Function) or node.name.startswith("_"):
                    continue
                if not ast.get_docstring(node):
                    yield f"{place}: {node.name}"
                if isinstance(node, ast.ClassDef):
                    for name in sorted(_methods(node) - self._said(node)):
                        yield f"{place}: {node.name}.{name}"

    def _said(self, node: ast.ClassDef) -> set[str]:
        """Methods that the class, a base of it or a protocol of it has words for."""
        line = list(self._line(node))
        has = set().union(*map(_methods, line), *map(_values, line))
        fits = [one for one in self.protocols if _methods(one) <= has]
        return set().union(*(_methods(one, documented=True) for one in [*line, *fits]))

    def _line(self, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        yield node
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
            for one in self.classes.get(name, []):
                yield from self._line(one)


def _methods(node: ast.ClassDef, documented: bool = False) -> set[str]:
    return {
        one.name
        for one in node.body
        if isinstance(one, Function) and not one.name.startswith("_")
        if ast.get_docstring(one) or not documented
    }


def _values(node: ast.ClassDef) -> set[str]:
    """Names with a value in the class itself: what a protocol has as a property may be one."""
    targets = [
        target
        for one in node.body
        if isinstance(one, ast.Assign | ast.AnnAssign)
        for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
    ]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_every_public_name_is_documented() -> None:
    names = Names(ROOT)
    assert len(names.modules) > 500
    assert list(names.undocumented()) == []


def test_a_name_without_words_is_seen(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def said():\n    'What it is.'\n\nclass Bare: ...\n")
    assert list(Names(tmp_path).undocumented()) == ["one.py", "one.py: Bare"]


def test_a_method_without_words_is_seen(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        '"""One."""\n'
        "class Way(Protocol):\n"
        "    'How.'\n"
        "    def go(self): 'Go.'\n"
        "    def stop(self): 'Stop.'\n"
        "class Walk:\n"
        "    'On foot.'\n"
        "    def go(self): ...\n"
        "    def stop(self): ...\n"
        "    def rest(self): ...\n"
        "class Run(Walk):\n"
        "    'Faster.'\n"
        "    def go(self): ...\n"
        "class Goes:\n"
        "    'No way.'\n"
        "    def go(self): ...\n"
    )
    assert list(Names(tmp_path).undocumented()) == ["one.py: Walk.rest", "one.py: Goes.go"]
