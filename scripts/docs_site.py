"""What the site needs beyond docs/: README and CONTRIBUTING as pages, and whatever pages link to.

Links are written for whoever reads the repository. One that leaves docs/ is turned to a copy
inside the site: a page for text, the file itself for a drawing. A link to nothing stays as it is,
and ``mkdocs build --strict`` refuses it. Docstrings name pages as ``docs/live.md#pace``, for who
reads the code; in the reference that is a link.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
_DRAWN = {".svg", ".png"}
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml"}
_MENTION = re.compile(r"(?<![\w/])docs/([\w/-]+)\.md(#[\w-]+)?")
_LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(\))")


def on_config(config: Any) -> Any:
    """Put pages of docs/ that the navigation does not name at the end of its guides."""
    named = set(_named(config["nav"]))
    guides = next(entry["Guides"] for entry in config["nav"] if "Guides" in entry)
    for path in sorted((ROOT / "docs").glob("*.md")):
        if path.name not in named:
            guides.append(path.name)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie elsewhere, and everything that some page links to outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    texts = [
        (_source(file.src_uri), file.content_string)
        for file in list(files)
        if file.src_uri.endswith(".md")
    ]
    for source, text in texts:
        for match in _LINK.finditer(text):
            path = _repository_path(source, match[2])
            page = _place(path)
            outside = not path.startswith("docs/") and path not in PAGES
            if outside and (ROOT / path).is_file() and files.get_file_from_path(page) is None:
                files.append(_copy(path, page, config))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    here = page.file.src_uri
    source = _source(here)

    def turn(match: re.Match[str]) -> str:
        path = _repository_path(source, match[2])
        if not (ROOT / path).is_file():
            return match[0]
        target = posixpath.relpath(_place(path), posixpath.dirname(here) or ".")
        return f"{match[1]}{target}{match[3] or ''}{match[4]}"

    return _LINK.sub(turn, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Make links of the pages that docstrings in the reference name."""
    here = page.file.src_uri
    if not here.startswith("reference/"):
        return html

    def turn(match: re.Match[str]) -> str:
        target = posixpath.relpath(f"{match[1]}.html", posixpath.dirname(here))
        return f'<a href="{target}{match[2] or ""}">{match[0]}</a>'

    return _MENTION.sub(turn, html)


def _named(entries: Any) -> Iterator[str]:
    for entry in entries:
        for inner in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [inner] if isinstance(inner, str) else _named(inner)


def _source(page: str) -> str:
    """Where in the repository a page of the site comes from."""
    for source, known in PAGES.items():
        if page == known:
            return source
    return f"docs/{page}"


def _repository_path(source: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _place(path: str) -> str:
    """Where in the site a file of the repository is."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    name, ending = os.path.splitext(path)
    return f"repository/{path}" if ending in _DRAWN else f"repository/{name}{ending}.md"


def _copy(path: str, page: str, config: Any) -> File:
    ending = os.path.splitext(path)[1]
    apart = InclusionLevel.NOT_IN_NAV
    if ending in _DRAWN:
        data = (ROOT / path).read_bytes()
        return File.generated(config, page, content=data, inclusion=apart)
    text = (ROOT / path).read_text("utf-8")
    if ending != ".md":
        text = f"# {path}\n\n```{_LANGUAGES.get(ending, 'text')}\n{text}```\n"
    return File.generated(config, page, content=text, inclusion=apart)
