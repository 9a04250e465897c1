"""The documentation is correct: its Python runs, its links resolve, its tables list what exists.

Python that calls a running gateway is run elsewhere: the README's by `test_readme.py`, that of `docs/clients.md` by
`tests/clients`, that of `docs/client.md` by `tests/client`, that of `docs/python-api.md` by `test_public_api.py`, the
tutorials by `test_tutorials.py`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tools import docs_site, modules_page

REPO = Path(__file__).resolve().parent.parent
PAGES = sorted([REPO / "README.md", *(REPO / page for page in docs_site.pages())])
ASKING = {
    REPO / "README.md",
    REPO / "docs" / "clients.md",
    REPO / "docs" / "client.md",
    REPO / "docs" / "python-api.md",
    *(REPO / "docs" / "tutorials").glob("*.md"),
}


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _parameter(page: Path) -> pytest.ParameterSet:
    """The page with its marks: Python that imports `antiphon.testing` starts servers."""
    starts_servers = any("antiphon.testing" in block for block in _blocks(page, "python"))
    return pytest.param(page, marks=[pytest.mark.io] if starts_servers else [], id=str(page.relative_to(REPO)))


@pytest.mark.parametrize("page", [_parameter(page) for page in sorted(set(PAGES) - ASKING)])
def test_page_python_examples_run(page: Path) -> None:
    exec(compile("\n".join(_blocks(page, "python")), str(page), "exec"), {"__name__": "__docs__"})


def test_library_page_has_python_examples() -> None:
    assert len(_blocks(REPO / "docs" / "library.md", "python")) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_file_links_of_pages_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_anchors_of_links_are_headings(page: Path) -> None:
    for target in docs_site.targets(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        if anchor and other.suffix == ".md":
            assert anchor in _anchors(other), f"{page.name} links to {target}, and there is no such heading"


def _anchors(page: Path) -> set[str]:
    """The anchors of the headings, as forges make them: of equal headings, the later ones have a number."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    counts: dict[str, int] = {}
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = counts.get(anchor, 0)
        counts[anchor] = count + 1
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def test_architecture_page_lists_the_enforced_layers_in_their_order() -> None:
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    text = (REPO / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## Packages")[2].partition("## ")[0]
    rows = re.findall(r"^\| (`[a-z_]+`(?: \\\| `[a-z_]+`)*) \|", table, flags=re.MULTILINE)
    assert [row.replace("`", "").replace("\\", "") for row in rows] == layers


@pytest.mark.slow
def test_modules_page_is_generated_from_docstrings() -> None:
    text = modules_page.PAGE.read_text(encoding="utf-8")
    assert text == modules_page.page(), "stale: run `PYTHONPATH=. python tools/modules_page.py`"
    assert "|  |" not in text, "a module has no docstring"


def test_contract_names_every_dialect_as_independent() -> None:
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    independent = next(contract["modules"] for contract in contracts if contract["type"] == "independence")
    dialects = {path.parent.name for path in (REPO / "src" / "antiphon" / "dialects").glob("*/__init__.py")} - {
        "common"
    }
    assert set(independent) == {f"antiphon.dialects.{name}" for name in dialects}


def test_lock_files_name_no_index_and_pin_everything_by_hash() -> None:
    for lock in ("requirements.txt", "requirements-dev.txt", "requirements-docs.txt", "requirements-local.txt"):
        text = (REPO / lock).read_text(encoding="utf-8")
        assert "://" not in text
        assert "--index" not in text
        pins = re.findall(r"^[a-z0-9._-]+==\S+ \\$", text, flags=re.MULTILINE)
        assert len(pins) == len(re.findall(r"^[a-z0-9._-]+[=<>]", text, flags=re.MULTILINE)) > 0
