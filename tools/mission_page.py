"""Generates docs/mission.md: every row of the project's scope, how to use the feature, and the tests that name the row.

Usage: `PYTHONPATH=. python tools/mission_page.py`. The rows are those of docs/requirements.md. A test fails if the page
is stale or if a row has no test.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from tools.requirement_rows import Requirement, requirements_by_section

REPO: Final = Path(__file__).resolve().parent.parent
PAGE: Final = REPO / "docs" / "mission.md"
TESTS: Final = REPO / "tests"
MAX_NAMED_TESTS: Final = 3  # per row; the other tests are only counted


def find_tests_by_row() -> dict[str, list[str]]:
    """Returns the tests of each row: those with its id in their name or docstring."""
    tests: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = f"{node.name.upper().replace('_', '-')} {ast.get_docstring(node) or ''}"
                for row in dict.fromkeys(re.findall(r"\b([A-Z]{1,4}-\d+)\b", text)):
                    tests.setdefault(row, []).append(f"{path.relative_to(TESTS)}::{node.name}")
    return tests


def page() -> str:
    """Returns the text of the page."""
    tests = find_tests_by_row()
    text = HEAD
    for title, rows in scope().items():
        text += f"\n## {title}\n\n| row | requirement | how to use it | tests |\n|---|---|---|---|\n"
        for row in rows:
            text += f"| {row.id} | {row.text} | {USAGE[row.id]} | {_render_tests(tests.get(row.id, []))} |\n"
    return text


def scope() -> dict[str, list[Requirement]]:
    """Returns the scope sections of docs/requirements.md. Their titles begin with the letter of their rows."""
    sections = requirements_by_section()
    return {title: rows for title, rows in sections.items() if title.startswith(f"{rows[0].id.partition('-')[0]}. ")}


def _render_tests(tests: list[str]) -> str:
    names = "<br>".join(f"`{test}`" for test in tests[:MAX_NAMED_TESTS])
    return f"{names}<br>and {len(tests) - MAX_NAMED_TESTS} more" if len(tests) > MAX_NAMED_TESTS else names


HEAD: Final = """# Scope and tests

This page lists, for each row of the [scope of the project](requirements.md#scope-of-the-project), how to use the
feature and which tests check it.
`tools/mission_page.py` generates the page from docs/requirements.md and the tests. A test fails if the page is stale.
"""
VSCODE: Final = "`POST /v1/vscode/chat`; `antiphon.dialects.vscode`"
PRODUCER: Final = "`antiphon.producer`; `antiphon serve --agent`"
CHAT: Final = "`/v1/chat/completions`; chat upstreams; `antiphon translate`"
USAGE: Final = {
    "A-1": VSCODE,
    "A-2": VSCODE,
    "A-3": VSCODE,
    "A-4": f"{VSCODE}; profiles",
    "A-5": VSCODE,
    "A-6": VSCODE,
    "A-7": VSCODE,
    "A-8": f"{VSCODE}; the extension in `integrations/vscode`",
    "B-1": "`antiphon.protocol.writer`; `antiphon.producer`",
    "B-2": "`antiphon.protocol.events`, `.emitters`",
    "B-3": "`antiphon.protocol.items`; `Turn.extension`",
    "B-4": "`antiphon.protocol.response`, `.writer`",
    "B-5": f"{PRODUCER}; `antiphon bridge`",
    "B-6": "`antiphon.errors`; every endpoint",
    "B-7": PRODUCER,
    "B-8": "`antiphon.producer`; `[agent.open_responses]`",
    "B-9": "`antiphon.client`",
    "B-10": "`antiphon check URL`",
    "C-1": VSCODE,
    "C-2": "every request to an upstream",
    "C-3": "`POST /v1/responses`; `antiphon explain`",
    "C-4": VSCODE,
    "C-5": "`antiphon usage`; `GET /v1/usage`",
    "C-6": "the error itself; `antiphon explain`; traces",
    "D-1": '`profile = "vercel-ai-gateway-2026-01"`',
    "D-2": "the same profile; quirks",
    "D-3": "`POST /v1/responses`",
    "D-4": "`antiphon probe URL`",
    "E-1": CHAT,
    "E-2": CHAT,
    "E-3": CHAT,
    "E-4": CHAT,
    "E-5": CHAT,
    "E-6": CHAT,
    "F-1": "`antiphon serve`; [the matrix](dialects.md)",
    "F-2": "`previous_response_id`, `background`, conversations, compaction",
    "F-3": "`make run`",
    "F-4": "the header `Antiphon-Losses`; `losses = \"strict\"`",
    "F-5": "`antiphon bridge`; `antiphon serve --agent`",
}  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
