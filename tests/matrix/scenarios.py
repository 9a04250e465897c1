"""The scenarios of the matrix: what the user, the model and the tools say, and what the client must have in the end."""

from __future__ import annotations

import json
from typing import Final

from msgspec import Struct
from tests.matrix.neutral import (
    PIXEL,
    TOOL,
    Answer,
    Asked,
    Call,
    Image,
    Refusal,
    Result,
    Said,
    Stop,
    Text,
    Thought,
    Told,
    Usage,
    User,
)

from antiphon import testing
from antiphon.testing.script import TurnElement as Scripted

#: Counted by each API in its own way: cached tokens inside the prompt or beside it, thoughts inside the answer or
#: beside it.
USAGE: Final = Usage(input=30, cached=8, output=12, reasoning=5)
SPOKEN_USAGE: Final = Usage(input=30, cached=8, output=12, reasoning=0)
SIGNATURE: Final = "c2lnbmVkIGJ5IHRoZSBzZXJ2ZXI="  # base64, as real ones are


class Turn(Struct, frozen=True, kw_only=True):
    """One answer of the model, and the results that the client gives to it."""

    said: list[Said]
    stop: Stop = "end"
    results: list[Result] = []

    @property
    def usage(self) -> Usage:
        return USAGE if any(isinstance(each, Thought) for each in self.said) else SPOKEN_USAGE

    def script(self) -> list[Scripted]:
        """The same for a fake server."""
        counted = testing.usage(
            self.usage.input, self.usage.output, cached=self.usage.cached, reasoning=self.usage.reasoning
        )
        told: list[Scripted] = [_scripted(said) for said in self.said]
        calls = [said for said in told if isinstance(said, testing.script.ToolCalls)]
        if len(calls) > 1:  # at once, piece by piece in turns
            told = [said for said in told if said not in calls] + [testing.interleaved(*calls)]
        return [*told, *([testing.finish("length")] if self.stop == "length" else []), counted]

    def answer(self, parsed: dict[str, object] | None = None) -> Answer:
        """What the client must have in the end."""
        return Answer(said=self.said, stop=self.stop, usage=self.usage, parsed=parsed)


class Scenario(Struct, frozen=True, kw_only=True):
    name: str
    asked: Asked
    turns: list[Turn]
    parsed: dict[str, object] | None = None
    #: Whether the server breaks off in the middle of its first answer.
    breaks: bool = False

    def told_before(self, turn: int, lifted: str = "") -> list[Told]:
        """What the server must have been told when it gives its answer number `turn`; where an image stands in no
        result, with what is said of it (`lifted` is the word for it) in its place and before it."""
        told: list[Told] = [User(self.asked.text), *([Image(PIXEL)] if self.asked.image else [])]
        for done in self.turns[:turn]:
            told += [said for said in done.said if isinstance(said, Text | Call)]
            for result in done.results:
                told += _shown(result, lifted) if result.shows else [result]
        return told


def _shown(result: Result, lifted: str) -> list[Told]:
    if not lifted:
        return [result._replace(shows=False), Image(PIXEL)]
    note = f"{result.text}\n[{lifted} 1 of this result follows below]"
    label = User(f"{lifted.capitalize()} 1 of the result of call {result.id}:")
    return [result._replace(text=note, shows=False), label, Image(PIXEL)]


def _scripted(said: Said) -> Scripted:
    match said:
        case Thought(text):
            return testing.reasoning(*_pieces(text), signature=SIGNATURE)
        case Text(text):
            return testing.text(*_pieces(text))
        case Refusal(text):
            return testing.refusal(*_pieces(text))
        case Call(id, name, arguments):
            return testing.tool_call(id, name, *_pieces(json.dumps(arguments)))


def _pieces(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


ROME: Final = Call("call_rome_1", TOOL, {"city": "Rome"})
OSLO: Final = Call("call_oslo_2", TOOL, {"city": "Oslo"})
SUNNY: Final = Turn(said=[Text("It is sunny in Rome.")])

SCENARIOS: Final = [
    Scenario(name="text", asked=Asked(text="Say hello."), turns=[Turn(said=[Text("Hello, world.")])]),
    Scenario(
        name="parallel calls",
        asked=Asked(text="Rome and Oslo?", tools=True),
        turns=[
            Turn(
                said=[ROME, OSLO], stop="calls", results=[Result(ROME.id, TOOL, "sunny"), Result(OSLO.id, TOOL, "snow")]
            ),
            Turn(said=[Text("Sunny in Rome, snow in Oslo.")]),
        ],
    ),
    Scenario(
        name="text and call",
        asked=Asked(text="Rome?", tools=True),
        turns=[Turn(said=[Text("Let me look."), ROME], stop="calls", results=[Result(ROME.id, TOOL, "sunny")]), SUNNY],
    ),
    Scenario(
        name="reasoning",
        asked=Asked(text="Rome?", tools=True, thinks=True),
        turns=[
            Turn(said=[Thought("I should look it up."), ROME], stop="calls", results=[Result(ROME.id, TOOL, "sunny")]),
            SUNNY,
        ],
    ),
    Scenario(name="image", asked=Asked(text="What is this?", image=True), turns=[Turn(said=[Text("A pixel.")])]),
    Scenario(
        name="image in result",
        asked=Asked(text="Show me Rome.", tools=True),
        turns=[Turn(said=[ROME], stop="calls", results=[Result(ROME.id, TOOL, "a view", shows=True)]), SUNNY],
    ),
    Scenario(
        name="structured",
        asked=Asked(text="Rome?", structured=True),
        turns=[Turn(said=[Text('{"city": "Rome", "degrees": 21}')])],
        parsed={"city": "Rome", "degrees": 21},
    ),
    Scenario(
        name="refusal",
        asked=Asked(text="Break in."),
        turns=[Turn(said=[Refusal("I cannot help with that.")], stop="refusal")],
    ),
    Scenario(name="length", asked=Asked(text="Tell a story."), turns=[Turn(said=[Text("Once upon a")], stop="length")]),
    Scenario(name="error", asked=Asked(text="Say hello."), turns=[Turn(said=[Text("Hello, world.")])], breaks=True),
]
