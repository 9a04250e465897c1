"""What is lost in which cells of the matrix, by rule, what a dialect cannot express, and the section of the page on
dialects.

`python -m tests.matrix.expected` writes the section of `docs/dialects.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from tests.matrix.neutral import Answer, Call, Refusal, Result, Said, Text, Told
from tests.matrix.scenarios import SCENARIOS, Scenario
from tests.matrix.servers import KINDS, Kind

DIALECTS: Final = [kind.dialect for kind in KINDS]
KIND_OF_DIALECT: Final = {kind.dialect: kind for kind in KINDS}
LIFTING: Final = [kind.dialect for kind in KINDS if kind.lifted]
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "dialects.md"
BEGIN: Final = "<!-- matrix -->"
END: Final = "<!-- /matrix -->"


class Cell(NamedTuple):
    client: str
    server: str
    scenario: Scenario


#: Something that a scenario shows and an API may lack.
Limit = Literal["call ids", "images in results", "refusals", "seals", "strict tools", "token details"]
#: What the API of a dialect, or its official SDK, cannot express, with the reason.
LIMITS: Final[dict[str, dict[Limit, str]]] = {
    "gemini": {"strict tools": "a function declaration has no such field"},
    "ollama": {
        "call ids": "the SDK drops them; a result belongs to the first call of its tool that has no result",
        "images in results": "a tool message has only text; clients send the image in a user message after it",
        "refusals": "an answer has neither a field nor a reason for a refusal, only text",
        "seals": "an answer has no place for sealed reasoning; clients return the plain text",
        "strict tools": "a function has no such field",
        "token details": "an answer counts neither cached nor reasoning tokens",
    },
}


def lacks(dialect: str, limit: Limit) -> bool:
    return limit in LIMITS.get(dialect, {})


class Rule(Struct, frozen=True, kw_only=True):
    """Something that cells of a kind lose, or have in another form: then there is no loss to name."""

    name: str
    about: str
    when: Callable[[Cell], bool]
    loss: str = ""  # its path
    since: int = 0  # the turn that loses it first
    until: int = 9  # the turn that loses it last


def expected_losses(cell: Cell, turn: int) -> list[str]:
    """The paths of all losses of a turn, and of no other, in the order of the alphabet."""
    return sorted(rule.loss for rule in RULES if rule.loss and rule.since <= turn <= rule.until and rule.when(cell))


def expected_answer(cell: Cell, turn: int) -> Answer:
    """The answer of a turn, as far as both APIs can express it."""
    answer = cell.scenario.turns[turn].answer(cell.scenario.parsed)
    said, stop, usage = answer.said, answer.stop, answer.usage
    if usage is not None and (lacks(cell.client, "token details") or lacks(cell.server, "token details")):
        usage = usage._replace(cached=0, reasoning=0)
    if stop == "refusal" and (lacks(cell.client, "refusals") or lacks(cell.server, "refusals")):
        said = [Text(each.text) if isinstance(each, Refusal) else each for each in said]
        stop = "length" if loses_the_reason(cell) else "end"
    if lacks(cell.client, "call ids"):
        said = [each._replace(id="") if isinstance(each, Call) else each for each in said]
    return replace(answer, said=said, stop=stop, usage=usage)


def expected_history(cell: Cell, turn: int, kind: Kind) -> list[Told]:
    """The conversation that the server must receive with the request of a turn."""
    lifted = "" if lacks(cell.client, "images in results") else kind.lifted
    told = cell.scenario.told_before(turn, lifted)
    if not lacks(cell.client, "call ids"):
        return told
    # The gateway names a call by the position of its message, which is always the second, and its own position there.
    ids = {call.id: f"call_1_{at}" for at, call in enumerate(_calls(cell.scenario.turns[0].said))}
    return [each._replace(id=ids[each.id]) if isinstance(each, Call | Result) else each for each in told]


def expected_thoughts(
    client: str, kind: Kind, turn: int, *, is_maker: bool = True, is_sealed: bool = True
) -> list[str]:
    """The reasoning that a server must receive with the request of a turn. RSN-3: only its own, if there are seals."""
    if lacks(client, "seals") or not is_sealed:
        return [kind.own] * turn if kind.accepts_plain_thoughts else []
    return [kind.own] * turn if is_maker else []


def loses_the_reason(cell: Cell) -> bool:
    """Whether the reason of a refusal is lost: some servers refuse by the reason to stop, others in the content."""
    return lacks(cell.client, "refusals") and cell.server in ("messages", "gemini")


def _calls(said: list[Said]) -> list[Call]:
    return [each for each in said if isinstance(each, Call)]


def section() -> str:
    """What the page says between its marks."""
    names = [scenario.name for scenario in SCENARIOS]
    lines = [f"| client → server | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for client in DIALECTS:
        for server in DIALECTS:
            cells = " | ".join(_cell(Cell(client, server, scenario)) for scenario in SCENARIOS)
            lines.append(f"| {client} → {server} | {cells} |")
    lines += ["", *(f"- **{rule.name}**: {rule.about}" for rule in RULES)]
    limits = ["| dialect | cannot express | reason |", "|---|---|---|"]
    limits += [
        f"| {dialect} | {limit} | {reason} |"
        for dialect, reasons in LIMITS.items()
        for limit, reason in reasons.items()
    ]
    return "\n\n".join(["", "## The matrix", INTRODUCTION, "\n".join(lines), LIMITS_TITLE, "\n".join(limits), ""])


def written(page: str) -> str:
    """The page with the section in its place."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + section() + END + rest.partition(END)[2]


def _cell(cell: Cell) -> str:
    names = [rule.name for rule in RULES if rule.when(cell)]
    return ", ".join(names) if names else "✓"


INTRODUCTION: Final = """\
The tests in `tests/matrix` run each pair of client and server with the official SDKs `openai`, `anthropic`, `google-genai` and `ollama`
against strict fake servers of the makers' APIs (profiles `openai`, `anthropic`, `google` and `ollama-native`; for chat a server whose model
reasons). Each cell is tested with whole answers and with streams.

- ✓: every client receives the same result, every server receives the same request, and `Antiphon-Losses` is empty.
- A word: the same, except for the difference that the list below the table explains.
- The column *error* is an error in the middle of an answer: in a stream, the SDK returns the content before the error, then raises."""
LIMITS_TITLE: Final = "What an API or its SDK cannot express is the same in every cell of a dialect:"
RULES: Final = [
    Rule(
        name="strict",
        about="Gemini and Ollama have no strict arguments: `tools[0].strict` is lost.",
        when=lambda cell: (
            lacks(cell.server, "strict tools") and not lacks(cell.client, "strict tools") and cell.scenario.asked.tools
        ),
        loss="tools[0].strict",
    ),
    Rule(
        name="lifted",
        about="tool results of this API are text only. The image follows all results, and a note replaces it. Nothing is lost.",
        when=lambda cell: (
            cell.server in LIFTING
            and not lacks(cell.client, "images in results")
            and any(result.shows for turn in cell.scenario.turns for result in turn.results)
        ),
    ),
    Rule(
        name="sealed",
        about="the server accepts its reasoning only in sealed form: the plain text `input[1].content` is lost.",
        when=lambda cell: cell.server == "responses" and not lacks(cell.client, "seals") and cell.scenario.asked.thinks,
        loss="input[1].content",
        since=1,
    ),
    Rule(
        name="ordering",
        about="the SDK adds `propertyOrdering` to a schema. Messages servers refuse the keyword, so it is lost.",
        when=lambda cell: cell.client == "gemini" and cell.server == "messages" and cell.scenario.asked.structured,
        loss="text.format.schema.propertyOrdering",
    ),
    Rule(
        name="unsealed",
        about="the client returns the reasoning without its seal, and the server accepts only its own: `input[1]` is lost.",
        when=lambda cell: (
            lacks(cell.client, "seals")
            and not KIND_OF_DIALECT[cell.server].accepts_plain_thoughts
            and cell.scenario.asked.thinks
        ),
        loss="input[1]",
        since=1,
    ),
    Rule(
        name="unsealed answer",
        about="the client gets the answer without the seals of its reasoning: `encrypted_content` is lost.",
        when=lambda cell: (
            lacks(cell.client, "seals") and cell.server in ("responses", "messages") and cell.scenario.asked.thinks
        ),
        loss="encrypted_content",
        until=0,
    ),
    Rule(
        name="unsigned answer",
        about="the client gets the answer without the signatures of its texts and calls: `encrypted_content` is lost.",
        when=lambda cell: lacks(cell.client, "seals") and cell.server == "gemini" and not cell.scenario.breaks,
        loss="encrypted_content",
    ),
    Rule(
        name="unsigned",
        about="the client returns a call without its signature: a placeholder that Gemini accepts is sent. Nothing is lost.",
        when=lambda cell: lacks(cell.client, "seals") and cell.server == "gemini" and cell.scenario.asked.tools,
    ),
    Rule(
        name="plain refusal",
        about="the API has no refusals: the client gets the same text as an answer.",
        when=lambda cell: (
            cell.scenario.turns[-1].stop == "refusal"
            and (lacks(cell.client, "refusals") or lacks(cell.server, "refusals"))
        ),
    ),
    Rule(
        name="reason",
        about="the server refuses by the reason to stop. The client gets `length`, so that the answer does not look complete: "
        "`incomplete_details.reason` is lost.",
        when=lambda cell: cell.scenario.turns[-1].stop == "refusal" and loses_the_reason(cell),
        loss="incomplete_details.reason",
    ),
]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
