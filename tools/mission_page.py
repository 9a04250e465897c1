"""Writes docs/mission.md: every row of the mission, how a user reaches it, and the tests that name it.

Usage: `PYTHONPATH=. python tools/mission_page.py`. A test says when the page is stale, and when a row has no test.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

REPO: Final = Path(__file__).resolve().parent.parent
PAGE: Final = REPO / "docs" / "mission.md"
TESTS: Final = REPO / "tests"
SHOWN: Final = 3  # tests of a row that are named; of the others the number is told


class Row(NamedTuple):
    what: str
    reached_by: str


class Part(NamedTuple):
    title: str
    rows: dict[str, Row]


def named_by_tests() -> dict[str, list[str]]:
    """The tests that name a row, in their names or docstrings."""
    named: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                words = f"{node.name.upper().replace('_', '-')} {ast.get_docstring(node) or ''}"
                for row in dict.fromkeys(re.findall(r"\b([A-Z]{1,4}-\d+)\b", words)):
                    named.setdefault(row, []).append(f"{path.relative_to(TESTS)}::{node.name}")
    return named


def page() -> str:
    """The whole page."""
    named = named_by_tests()
    text = HEAD
    for part in PARTS:
        text += f"\n## {part.title}\n\n| row | what | how it is reached | tests |\n|---|---|---|---|\n"
        for id, row in part.rows.items():
            text += f"| {id} | {row.what} | {row.reached_by} | {_told(named.get(id, []))} |\n"
    return text


def _told(tests: list[str]) -> str:
    shown = "<br>".join(f"`{test}`" for test in tests[:SHOWN])
    return f"{shown}<br>and {len(tests) - SHOWN} more" if len(tests) > SHOWN else shown


HEAD: Final = """# The mission, row by row

Antiphon began with five documents about five systems around one protocol. This page lists what they ask for, where a user finds it,
and the tests that hold it; `tools/mission_page.py` writes it, a test compares it with the tests there are.
"""
VSCODE: Final = "`POST /v1/vscode/chat`; `antiphon.dialects.vscode`"
PRODUCER: Final = "`antiphon.producer`; `antiphon serve --agent`"
CHAT: Final = "`/v1/chat/completions`; chat upstreams; `antiphon translate`"
PARTS: Final = (
    Part(
        "A. VS Code's language model API",
        {
            "A-1": Row("roles, and content as a string or as parts", VSCODE),
            "A-2": Row("text parts", VSCODE),
            "A-3": Row("data parts by their media type", VSCODE),
            "A-4": Row("tool calls, as items or as text", f"{VSCODE}; profiles"),
            "A-5": Row("tool results in their place", VSCODE),
            "A-6": Row("system prompts as instructions", VSCODE),
            "A-7": Row("tools and tool mode", VSCODE),
            "A-8": Row("events as response parts", f"{VSCODE}; the extension in `integrations/vscode`"),
        },
    ),
    Part(
        "B. Agents that are a model, and programs that call one",
        {
            "B-1": Row("the life of an item; illegal moves are refused", "`antiphon.protocol.writer`; `antiphon.producer`"),
            "B-2": Row("typed events and emitters", "`antiphon.protocol.events`, `.emitters`"),
            "B-3": Row("items, and extensions with a checked prefix", "`antiphon.protocol.items`; `Turn.extension`"),
            "B-4": Row("a response that completes, fails or stays incomplete", "`antiphon.protocol.response`, `.writer`"),
            "B-5": Row("an agent's thread events in, Open Responses out", f"{PRODUCER}; `antiphon bridge`"),
            "B-6": Row("errors with type, code, param and message", "`antiphon.errors`; every endpoint"),
            "B-7": Row("usage from an agent's own counters", PRODUCER),
            "B-8": Row("the integration object and its switches", "`antiphon.producer`; `[agent.open_responses]`"),
            "B-9": Row("any server as a backend, streaming and not", "`antiphon.client`"),
            "B-10": Row("conformance of this project and of any URL", "`antiphon check URL`"),
        },
    ),
    Part(
        "C. A gateway behind an editor",
        {
            "C-1": Row("system prompts found, no real turn eaten", VSCODE),
            "C-2": Row("content types by role", "every request that goes out"),
            "C-3": Row("flat tools; nested ones explained", "`POST /v1/responses`; `antiphon explain`"),
            "C-4": Row("a stream as parts, arguments assembled", VSCODE),
            "C-5": Row("usage by model, key, upstream and day", "`antiphon usage`; `GET /v1/usage`"),
            "C-6": Row("why a server refused, in words", "the error itself; `antiphon explain`; traces"),
        },
    ),
    Part(
        "D. A server's real constraints",
        {
            "D-1": Row("what such a server takes, as a profile", '`profile = "vercel-ai-gateway-2026-01"`'),
            "D-2": Row("the two text forms, exactly", "the same profile; quirks"),
            "D-3": Row("the call of a lone output, from the store", "`POST /v1/responses`"),
            "D-4": Row("the experiments, for any server", "`antiphon probe URL`"),
        },
    ),
    Part(
        "E. Chat Completions and Responses",
        {
            "E-1": Row("messages as items", CHAT),
            "E-2": Row("calls and results, ids kept", CHAT),
            "E-3": Row("output items as one message", CHAT),
            "E-4": Row("cache hints taken out, system text placed", CHAT),
            "E-5": Row("five rules over generated conversations", CHAT),
            "E-6": Row("all of it streaming, both ways", CHAT),
        },
    ),
    Part(
        "F. Beyond the documents",
        {
            "F-1": Row("every client dialect to every server dialect", "`antiphon serve`; [the matrix](dialects.md)"),
            "F-2": Row("memory over upstreams that have none", "`previous_response_id`, `background`, conversations, compaction"),
            "F-3": Row("a model that answers without a key", "`make run`"),
            "F-4": Row("nothing lost in silence", "the header `Antiphon-Losses`; `losses = \"strict\"`"),
            "F-5": Row("any command-line agent as a model", "`antiphon bridge`; `antiphon serve --agent`"),
        },
    ),
)  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
