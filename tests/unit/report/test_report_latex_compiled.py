"""What pdfLaTeX makes of the tables: a page, and nothing beyond its edges."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from handwritten import SCENARIO, Run
from handwritten_drill import Drill
from handwritten_drill_sweep import sweep as compared
from test_report_energy import SITES
from test_report_sweeps import swept

from geokv.report.latex import SIGNS, to_latex
from geokv.report.outputs import write_outputs

LATEX = "pdflatex"
KINDS = {
    "run": lambda: Run(),
    "sweep": lambda: Run(swept()),
    "power": lambda: Run({**SCENARIO, "energy": {"sites": SITES}}),
    "drill": lambda: Drill(),
    "swept drill": lambda: Drill(compared()),
}
PACKAGES = ("booktabs", "graphicx", "amssymb", "textcomp")
"""Those that the table's own first line names."""
LONG_S = 60

pytestmark = pytest.mark.skipif(
    shutil.which(LATEX) is None,
    reason="pdflatex is not installed (apt install texlive-latex-recommended)",
)


def compiled(table: str, folder: Path, columns: str) -> str:
    """Its log, after a page was made."""
    packages = [rf"\usepackage{{{name}}}" for name in PACKAGES]
    document = [
        rf"\documentclass[{columns}]{{article}}", *packages,
        r"\begin{document}", r"\listoftables", table, r"\end{document}",
    ]  # fmt: skip
    (folder / "page.tex").write_text("\n".join(document), encoding="utf-8")
    done = subprocess.run(
        [LATEX, "-interaction=nonstopmode", "-halt-on-error", "page.tex"],
        cwd=folder, capture_output=True, timeout=LONG_S,
    )  # fmt: skip
    log = (folder / "page.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log
    assert (folder / "page.pdf").read_bytes().startswith(b"%PDF-")
    return log


def summary_of(kind: str, folder: Path) -> dict[str, Any]:
    return write_outputs(KINDS[kind]().write(folder), ["latex"])


@pytest.mark.parametrize("columns", ["onecolumn", "twocolumn"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_compiles_and_fits(kind: str, columns: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    summary_of(kind, run_dir)
    table = (run_dir / "table.tex").read_text(encoding="utf-8")
    first = table.splitlines()[0]
    assert first.endswith("needs booktabs, graphicx, amssymb and textcomp")
    log = compiled(table, tmp_path, columns)
    for trouble in ("Overfull", "Float too large", "Missing character", "Undefined"):
        assert trouble not in log


def test_every_sign_that_is_replaced_compiles(tmp_path: Path) -> None:
    """In the caption, in the list of tables and at the head of a row."""
    summary = summary_of("drill", tmp_path / "run")
    summary["scenario"]["title"] = "é ½ [x] " + " ".join(SIGNS)
    for cell in summary["cells"]:
        cell["label"] = "[5pt] " + "".join(SIGNS)
    assert "Missing character" not in compiled(to_latex(summary), tmp_path, "onecolumn")


def test_a_title_in_another_script_says_what_sets_it(tmp_path: Path) -> None:
    summary = summary_of("run", tmp_path / "run")
    summary["scenario"]["title"] = "東京から大阪まで"
    first = to_latex(summary).splitlines()[0]
    assert first.endswith("textcomp; XeLaTeX or LuaLaTeX for its words")
