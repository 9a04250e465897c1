"""What is said in a cell of the matrix, in nobody's dialect: a client reads answers into this, a server what it was
told."""

from __future__ import annotations

import base64
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from pydantic import BaseModel

Stop = Literal["end", "calls", "length", "refusal"]


class User(NamedTuple):
    text: str


class Image(NamedTuple):
    data: str


class Thought(NamedTuple):
    text: str


class Text(NamedTuple):
    text: str


class Refusal(NamedTuple):
    text: str


class Call(NamedTuple):
    id: str
    name: str
    arguments: Any


class Result(NamedTuple):
    """What a tool said, and whether it showed an image."""

    id: str
    name: str
    text: str
    shows: bool = False


Said = Thought | Text | Refusal | Call
Told = User | Image | Text | Call | Result


class Usage(NamedTuple):
    """All that was read, cached tokens among it; all that was written, thoughts among it."""

    input: int
    cached: int
    output: int
    reasoning: int


class Asked(Struct, frozen=True, kw_only=True):
    """What the user wants, and what the client sets for it."""

    text: str
    image: bool = False
    tools: bool = False
    thinks: bool = False
    structured: bool = False


class Answer(Struct, frozen=True, kw_only=True):
    """What a client has in the end."""

    said: list[Said]
    stop: Stop
    usage: Usage | None
    parsed: dict[str, Any] | None = None


class Failed(Exception):
    """What the client's SDK raised, and the text that it had given out by then."""

    def __init__(self, raised: Exception, text: str = "") -> None:
        super().__init__(f"{type(raised).__name__}: {raised}")
        self.raised = raised
        self.text = text


class Weather(BaseModel):
    """The form of a structured output."""

    city: str
    degrees: int


TOOL: Final = "get_weather"
ABOUT_TOOL: Final = "Tells the weather in a city."
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
#: A PNG of one pixel.
PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PIXEL_BYTES: Final = base64.b64decode(PIXEL)
