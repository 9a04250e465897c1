"""What the documentation says is true: its Python runs, its links lead somewhere, its tables name what is there.

Python that asks a running gateway is run elsewhere: the README's by `test_readme.py`, that of `docs/clients.md` by
`tests/clients`, that of `docs/client.md` by `tests/client`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
PAGES = sorted([REPO / "README.md", REPO / "CHANGELOG.md", *(REPO / "docs").rglob("*.md")])
ASKING = {REPO / "README.md", REPO / "docs" / "clients.md", REPO / "docs" / "client.md"}
PLAN = (REPO / "docs" / "how-data-flows.md").read_text(encoding="utf-8")


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", sorted(set(PAGES) - ASKING), ids=lambda page: str(page.relative_to(REPO)))
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path) -> None:
    exec(compile("\n".join(_blocks(page, "python")), str(page), "exec"), {"__name__": "__docs__"})


def test_the_library_page_has_python_to_run() -> None:
    assert len(_blocks(REPO / "docs" / "library.md", "python")) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_the_rooms_of_the_plan_are_the_layers_that_are_enforced() -> None:
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    plan = PLAN.partition("## Rooms")[2].partition("## ")[0]
    assert [f"antiphon.{room}" for room in re.findall(r"^\| `([a-z]+)` \|", plan, flags=re.MULTILINE)] == layers


def test_every_file_of_the_hub_is_in_the_plan() -> None:
    table = PLAN.partition("## The hub, file by file")[2].partition("## ")[0]
    assert _told(table) == _modules("protocol")


@pytest.mark.parametrize("package", ["chat", "responses", "messages", "gemini", "vscode", "common"])
def test_every_file_of_a_dialect_is_in_the_plan(package: str) -> None:
    dialects = PLAN.partition("## The dialects, file by file")[2].partition("## ")[0]
    assert _told(_table(dialects, package)) == _modules(f"dialects/{package}")


@pytest.mark.parametrize(
    "room",
    [
        "cli",
        "producer",
        "api",
        "http",
        "ops",
        "gateway",
        "check",
        "probe",
        "client",
        "testing",
        "testing/chat",
        "testing/responses",
        "testing/messages",
        "testing/gemini",
        "upstream",
        "store",
        "store/sqlite",
        "store/postgres",
        "trace",
        "config",
        "profiles",
    ],
)
def test_every_file_of_a_room_is_in_the_plan(room: str) -> None:
    assert _told(_table(PLAN, room)) == _modules(room)


def test_dialects_are_told_to_be_independent_of_each_other() -> None:
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    independent = next(contract["modules"] for contract in contracts if contract["type"] == "independence")
    dialects = {path.parent.name for path in (REPO / "src" / "antiphon" / "dialects").glob("*/__init__.py")} - {"common"}
    assert set(independent) == {f"antiphon.dialects.{name}" for name in dialects}


def test_the_lock_names_no_index_and_pins_everything_by_hash() -> None:
    for lock in ("requirements.txt", "requirements-dev.txt", "requirements-local.txt"):
        text = (REPO / lock).read_text(encoding="utf-8")
        assert "://" not in text
        assert "--index" not in text
        pins = re.findall(r"^[a-z0-9._-]+==\S+ \\$", text, flags=re.MULTILINE)
        assert len(pins) == len(re.findall(r"^[a-z0-9._-]+[=<>]", text, flags=re.MULTILINE)) > 0


def _table(text: str, package: str) -> str:
    return text.partition(f"| `{package}` | what it knows |")[2].partition("\n\n")[0]


def _told(table: str) -> set[str]:
    """The names in the first column of a table."""
    return {name for row in re.findall(r"^\| (`[^|]+`) \|", table, flags=re.MULTILINE) for name in re.findall(r"`([a-z_]+)`", row)}


def _modules(folder: str) -> set[str]:
    return {path.stem for path in (REPO / "src" / "antiphon" / folder).glob("*.py")} - {"__init__", "__main__"}
