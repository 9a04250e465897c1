"""The documentation site: its navigation is complete, and the built site needs no other host and has no broken link.

The tests with the marker `heavy` read the site that `make docs` builds; `make test-docs` runs them."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.sources import REPO

from tools import docs_site, http_api_page, python_api_page

SITE = REPO / ".docs" / "site"
OUTSIDE_OF_DOCS = ["CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "bench/RESULTS.md"]
OUTSIDE_OF_DOCS += ["examples/README.md"]
# The attributes with which an element loads a file.
LOADING = {"audio": "src", "iframe": "src", "img": "src", "link": "href", "object": "data", "script": "src"}
LOADING |= {"source": "src", "video": "src"}


# Sources


def test_navigation_names_every_page_once() -> None:
    files = [path.relative_to(REPO).as_posix() for path in (REPO / "docs").rglob("*.md")]
    assert sorted(docs_site.pages()) == sorted([*files, *OUTSIDE_OF_DOCS])


def test_places_are_distinct_and_lower_case() -> None:
    places = [docs_site.place(page) for page in docs_site.pages()]
    assert len({*places}) == len(places)
    assert places[0] == "index"
    assert {"decisions/index", "bench/results", "changelog"} <= {*places}
    assert [place for place in places if place != place.lower()] == []


def test_llms_text_describes_every_page_of_the_navigation() -> None:
    rows = re.findall(r"^- \[(.+)\]\(_sources/(.+)\.md\): (.+)$", docs_site.llms_text(), flags=re.MULTILINE)
    listed = [page for section in docs_site.sections() for page in section.pages]
    assert [place for _, place, _ in rows] == [docs_site.place(page) for page in listed]
    assert [row for row in rows if not row[2].endswith(".") or len(row[2]) < 20] == []


def test_staged_links_lead_to_staged_files(tmp_path: Path) -> None:
    docs_site.stage(tmp_path / "source")
    links = [
        (page, target.partition("#")[0])
        for page in (tmp_path / "source").rglob("*.md")
        for target in docs_site.targets(page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 200
    assert [(page.name, path) for page, path in links if path and not (page.parent / path).is_file()] == []


def test_decisions_page_lists_every_decision() -> None:
    listed = set(docs_site.targets(docs_site.read("docs/decisions/README.md")))
    assert listed == {path.name for path in (REPO / "docs" / "decisions").glob("0*.md")}


def test_examples_page_lists_every_example() -> None:
    listed = set(docs_site.targets(docs_site.read("examples/README.md")))
    assert listed == {path.name for path in (REPO / "examples").glob("*.py")}


@pytest.mark.slow
def test_http_api_page_is_generated_from_the_openapi_document() -> None:
    text = http_api_page.PAGE.read_text(encoding="utf-8")
    assert text == http_api_page.page(), "stale: run `PYTHONPATH=. python tools/http_api_page.py`"


@pytest.mark.slow
def test_python_api_page_is_generated_from_docstrings() -> None:
    text = python_api_page.PAGE.read_text(encoding="utf-8")
    assert text == python_api_page.page(), "stale: run `PYTHONPATH=. python tools/python_api_page.py`"
    assert "|  |" not in text, "a type has no docstring"


# The built site


class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors.add(values.get("id", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADING and LOADING[tag] in values and values.get("rel") not in ("next", "prev", "index", "search"):
            self.loaded.append(values[LOADING[tag]])
        self.loaded += re.findall(r"url\(([^)]+)\)", values.get("style", ""))


@cache
def built_page(path: Path) -> Page:
    return Page(path)


def built_pages() -> list[Path]:
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 50, "run `make docs` first"
    return pages


@pytest.mark.heavy
def test_links_of_the_site_lead_to_files_and_anchors() -> None:
    broken = [f"{path.relative_to(SITE)}: {link}" for path in built_pages() for link in _broken_links(path)]
    assert broken == []


def _broken_links(path: Path) -> list[str]:
    return [link for link in built_page(path).links if not _leads_somewhere(path, link)]


def _leads_somewhere(path: Path, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = path.parent / unquote(parts.path) if parts.path else path
    if not target.is_file():
        return False
    return not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in built_page(target).anchors


@pytest.mark.heavy
def test_site_loads_nothing_from_other_hosts() -> None:
    outside = [
        f"{path.relative_to(SITE)}: {file}"
        for path in built_pages()
        for file in built_page(path).loaded
        if urlsplit(file.strip("'\"")).netloc
    ]
    sheets = [
        f"{sheet.relative_to(SITE)}: {file}"
        for sheet in SITE.rglob("*.css")
        for file in re.findall(r"(?:url\(|@import )\s*[\"']?(?:https?:)?//[^)\"']+", sheet.read_text(encoding="utf-8"))
    ]
    scripts = [
        f"{script.relative_to(SITE)}: {address}"
        for script in SITE.rglob("*.js")
        for address in re.findall(
            r"(?:import\(|fetch\(|src\s*=\s*|importScripts\()[\"'](?:https?:)?//[^\"']+",
            script.read_text(encoding="utf-8"),
        )
    ]
    assert outside + sheets + scripts == []


@pytest.mark.heavy
def test_search_index_has_every_page() -> None:
    """The browser loads the index as a script, so that the search needs no server."""
    text = (SITE / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    assert {*index["docnames"]} == {docs_site.place(page) for page in docs_site.pages()}
    assert {"antiphon", "fallback", "loss"} <= {*index["terms"]}


@pytest.mark.heavy
def test_llms_text_is_on_the_site_and_its_links_resolve() -> None:
    text = (SITE / "llms.txt").read_text(encoding="utf-8")
    assert text == docs_site.llms_text()
    assert [link for link in docs_site.targets(text) if not (SITE / link).is_file()] == []
