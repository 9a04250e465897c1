"""What is lost in which cells of the matrix, by rule, and what the page on dialects says of it.

`python -m tests.matrix.expected` writes the section of `docs/dialects.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct
from tests.matrix.scenarios import SCENARIOS, Scenario
from tests.matrix.servers import KINDS

DIALECTS: Final = [kind.dialect for kind in KINDS]
LIFTING: Final = [kind.dialect for kind in KINDS if kind.lifted]
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "dialects.md"
BEGIN: Final = "<!-- matrix -->"
END: Final = "<!-- /matrix -->"


class Cell(NamedTuple):
    client: str
    server: str
    scenario: Scenario


class Rule(Struct, frozen=True, kw_only=True):
    """Something that cells of a kind lose, or have in another form: then there is no loss to name."""

    name: str
    about: str
    when: Callable[[Cell], bool]
    loss: str = ""  # its path
    since: int = 0  # the turn that loses it first


def expected_losses(cell: Cell, turn: int) -> list[str]:
    """The paths of all losses of a turn, and of no other, in the order of the alphabet."""
    return sorted(rule.loss for rule in RULES if rule.loss and rule.since <= turn and rule.when(cell))


def section() -> str:
    """What the page says between its marks."""
    names = [scenario.name for scenario in SCENARIOS]
    lines = [f"| client → server | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for client in DIALECTS:
        for server in DIALECTS:
            cells = " | ".join(_cell(Cell(client, server, scenario)) for scenario in SCENARIOS)
            lines.append(f"| {client} → {server} | {cells} |")
    lines += ["", *(f"- **{rule.name}**: {rule.about}" for rule in RULES)]
    return "\n\n".join(["", "## The matrix", INTRODUCTION, "\n".join(lines), ""])


def written(page: str) -> str:
    """The page with the section in its place."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + section() + END + rest.partition(END)[2]


def _cell(cell: Cell) -> str:
    names = [rule.name for rule in RULES if rule.when(cell)]
    return ", ".join(names) if names else "✓"


INTRODUCTION: Final = """\
The tests in `tests/matrix` run each pair of client and server with the official SDKs `openai`, `anthropic` and `google-genai` against
strict fake servers of the makers' APIs (profiles `openai`, `anthropic` and `google`; for chat a server whose model reasons). Each cell is
tested with whole answers and with streams.

- ✓: every client receives the same result, every server receives the same request, and `Antiphon-Losses` is empty.
- A word: the same, except for the difference that the list below the table explains.
- The column *error* is an error in the middle of an answer: in a stream, the SDK returns the content before the error, then raises."""
RULES: Final = [
    Rule(
        name="strict",
        about="Gemini has no strict arguments: `tools[0].strict` is lost.",
        when=lambda cell: cell.server == "gemini" and cell.client != "gemini" and cell.scenario.asked.tools,
        loss="tools[0].strict",
    ),
    Rule(
        name="lifted",
        about="tool results of this API are text only. The image follows all results, and a note replaces it. Nothing is lost.",
        when=lambda cell: (
            cell.server in LIFTING and any(result.shows for turn in cell.scenario.turns for result in turn.results)
        ),
    ),
    Rule(
        name="sealed",
        about="the server accepts its reasoning only in sealed form: the plain text `input[1].content` is lost.",
        when=lambda cell: cell.server == "responses" and cell.scenario.asked.thinks,
        loss="input[1].content",
        since=1,
    ),
    Rule(
        name="summary",
        about="Chat Completions has no setting for a reasoning summary: `reasoning.summary` is lost.",
        when=lambda cell: cell.client == "gemini" and cell.server == "chat" and cell.scenario.asked.thinks,
        loss="reasoning.summary",
    ),
    Rule(
        name="ordering",
        about="the SDK adds `propertyOrdering` to a schema. Messages servers refuse the keyword, so it is lost.",
        when=lambda cell: cell.client == "gemini" and cell.server == "messages" and cell.scenario.asked.structured,
        loss="text.format.schema.propertyOrdering",
    ),
    Rule(
        name="signature",
        about="the signature of a truncated text is lost: `thoughtSignature`.",
        when=lambda cell: cell.server == "gemini" and cell.scenario.turns[-1].stop in ("length", "refusal"),
        loss="thoughtSignature",
    ),
]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
