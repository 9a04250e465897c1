"""Prepares the documentation site: the sources for Sphinx and `llms.txt`, from the Markdown pages of the repository.

python tools/docs_site.py FOLDER
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

REPO: Final = Path(__file__).resolve().parent.parent
NAVIGATION: Final = REPO / "docs" / "navigation.toml"
LANDING_PAGE: Final = "docs/README.md"
SUMMARY: Final = "A gateway and Python library that translates between LLM APIs."
# A fenced block, which has no links, or the target of a link or an image.
BLOCK_OR_TARGET: Final = re.compile(r"^```.*?^```|(?<=\]\()[^)\s:]+(?=\))", re.MULTILINE | re.DOTALL)


class Section(NamedTuple):
    """A section of the navigation, with the paths of its pages in the repository."""

    title: str
    pages: list[str]


def sections() -> list[Section]:
    """Returns the navigation."""
    return [Section(**section) for section in tomllib.loads(NAVIGATION.read_text(encoding="utf-8"))["sections"]]


def pages() -> list[str]:
    """Returns the paths of all pages of the site."""
    listed = [page for section in sections() for page in section.pages]
    return [LANDING_PAGE, *(each for page in listed for each in (page, *pages_below(page)))]


def pages_below(page: str) -> list[str]:
    """Returns the pages in the folder of a `README`, which the navigation shows below it."""
    if page == LANDING_PAGE or not page.endswith("/README.md"):
        return []
    folder = (REPO / page).parent
    return [path.relative_to(REPO).as_posix() for path in sorted(folder.glob("*.md")) if path != REPO / page]


def place(page: str) -> str:
    """Returns the place of a page on the site: `index` for the landing page, else a path without `docs`."""
    folder, _, name = page.removeprefix("docs/").removesuffix(".md").rpartition("/")
    return posixpath.join(folder, "index" if name == "README" else name.lower())


def stage(folder: Path) -> None:
    """Writes the sources of the site to a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages():
        text = _with_staged_links(page, read(page))
        if page == LANDING_PAGE:
            text += "".join(_table_of_contents(section.pages, section.title) for section in sections())
        elif below := pages_below(page):
            text += _table_of_contents([posixpath.basename(each) for each in below])
        _write(folder / f"{place(page)}.md", text)
        for file in _linked_files(page):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPO / file, folder / file)
    _write(folder / "llms.txt", llms_text())


def read(page: str) -> str:
    """Returns the Markdown of a page."""
    return (REPO / page).read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _table_of_contents(entries: list[str], caption: str = "") -> str:
    """A part of the navigation in the form of Sphinx. The page does not show it."""
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    names = "".join(f"{place(entry)}\n" for entry in entries)
    return f"\n```{{toctree}}\n{options}\n{names}```\n"


# Links


def targets(text: str) -> Iterator[str]:
    """The targets of the links and images of a page that lead to files or to anchors."""
    return (match for match in BLOCK_OR_TARGET.findall(text) if not match.startswith("```"))


def resolve(page: str, path: str) -> str:
    """Returns the path in the repository that a link of a page leads to: of a folder, its `README`."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return f"{target}/README.md" if (REPO / target).is_dir() else target


def _with_staged_links(page: str, text: str) -> str:
    """The text with links that are right on the site."""
    places = {page: f"{place(page)}.md" for page in pages()}

    def on_site(target: str) -> str:
        path, _, anchor = target.partition("#")
        if not path:
            return target
        file = resolve(page, path)
        link = posixpath.relpath(places.get(file, file), posixpath.dirname(places[page]) or ".")
        return f"{link}#{anchor}" if anchor else link

    return _replace_targets(text, on_site)


def _replace_targets(text: str, replace: Callable[[str], str]) -> str:
    return BLOCK_OR_TARGET.sub(lambda match: match[0] if match[0].startswith("```") else replace(match[0]), text)


def _linked_files(page: str) -> set[str]:
    """The files that a page shows or links to and that are no pages, such as images."""
    files = {resolve(page, path) for target in targets(read(page)) if (path := target.partition("#")[0])}
    return files - {*pages()}


# llms.txt


def llms_text() -> str:
    """Returns `llms.txt`: every page with its first sentence and a link to its Markdown."""
    parts = [
        f"\n## {section.title}\n\n"
        + "".join(f"- [{title_of(page)}](_sources/{place(page)}.md): {summary_of(page)}\n" for page in section.pages)
        for section in sections()
    ]
    return f"# Antiphon\n\n> {SUMMARY}\n{''.join(parts)}"


def title_of(page: str) -> str:
    """Returns the title of a page."""
    return read(page).partition("\n")[0].removeprefix("# ")


def summary_of(page: str) -> str:
    """Returns the first sentence of a page, without links."""
    paragraph = next(
        part for part in read(page).split("\n\n")[1:] if part[0].isalnum() or part.startswith(("`", "*", "["))
    )
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
    sentence = re.match(r".+?[.](?=\s|$)", plain)
    return sentence[0] if sentence else f"{plain.rstrip(':')}."


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: docs_site.py FOLDER")
    stage(Path(os.path.abspath(sys.argv[1])))
