"""Everything a run folder gets from its records: one function per output format."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, get_args

from geokv.measure.drill.summary import summarise_drill
from geokv.measure.energy import joules_by_request
from geokv.measure.records import load_cells, load_requests
from geokv.measure.summary import summarise
from geokv.report.csv import to_csv
from geokv.report.disk import write_text
from geokv.report.drill_csv import to_drill_csv
from geokv.report.drill_links import to_drill_links
from geokv.report.drill_markdown import to_drill_markdown
from geokv.report.history import merge_history
from geokv.report.latex import to_latex
from geokv.report.links import to_links
from geokv.report.markdown import to_markdown
from geokv.report.sheet.write import write_sheets
from geokv.report.trace import write_trace
from geokv.scenario import read_back

Format = Literal["html", "md", "csv", "parquet", "latex"]
FORMATS: tuple[Format, ...] = get_args(Format)
_PAGES: frozenset[Format] = frozenset({"html", "md"})
"""They show figures and link checks, which are written with them."""


def write_outputs(run_dir: Path, formats: Collection[Format] = FORMATS) -> dict[str, Any]:
    """Reduce the records and write ``summary.json``, the history, the trace and these formats.

    Returns:
        The summary.

    Raises:
        RunError: broken or missing records, or a full disk.
        ConfigError: not a run folder, or one that cannot be written to.
    """
    if read_back(run_dir / "scenario.yaml").is_drill:
        return _drill(run_dir, formats)
    return _measurement(run_dir, formats)


def _measurement(run_dir: Path, formats: Collection[Format]) -> dict[str, Any]:
    summary = summarise(run_dir)
    _write_summary(run_dir, summary)
    _write_tables(run_dir, summary, formats, to_csv(summary), to_markdown(summary))
    merge_history(run_dir)
    write_trace(run_dir)
    # Imported late: a table is printed and a folder made without Arrow and Matplotlib.
    if "parquet" in formats:
        from geokv.report.parquet import write_parquet

        write_parquet(
            run_dir / "requests.parquet",
            load_requests(run_dir),
            load_cells(run_dir),
            joules_by_request(run_dir),
        )
    if _PAGES & set(formats):
        from geokv.report.page.write import write_page
        from geokv.report.plots import draw_plots

        write_text(run_dir / "links.json", to_links(load_cells(run_dir)))
        draw_plots(summary, run_dir / "plots")
        write_page(run_dir, summary, formats)
    return summary


def _drill(run_dir: Path, formats: Collection[Format]) -> dict[str, Any]:
    """A drill is judged by its history, so that is merged first."""
    merge_history(run_dir)
    summary = summarise_drill(run_dir)
    _write_summary(run_dir, summary)
    _write_tables(run_dir, summary, formats, to_drill_csv(summary), to_drill_markdown(summary))
    write_trace(run_dir)
    if "parquet" in formats:
        from geokv.report.drill_parquet import write_drill_parquet

        write_drill_parquet(run_dir / "requests.parquet", run_dir, summary)
    if _PAGES & set(formats):
        from geokv.report.page.write import write_page

        write_text(run_dir / "links.json", to_drill_links(run_dir, summary))
        if summary["figures"]:
            from geokv.report.plots import draw_plots

            draw_plots(summary, run_dir / "plots")
        write_sheets(run_dir, summary)
        write_page(run_dir, summary, formats)
    return summary


def _write_tables(
    run_dir: Path, summary: dict[str, Any], formats: Collection[Format], csv: str, markdown: str
) -> None:
    if "csv" in formats:
        write_text(run_dir / "table.csv", csv)
    if "md" in formats:
        write_text(run_dir / "table.md", markdown)
    if "latex" in formats:
        write_text(run_dir / "table.tex", to_latex(summary))


def _write_summary(run_dir: Path, summary: dict[str, Any]) -> None:
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(run_dir / "summary.json", text + "\n")
