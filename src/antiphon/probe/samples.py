"""Texts, schemas and files that the experiments of all dialects share, simple enough for any model."""

from __future__ import annotations

from typing import Any, Final, Literal

#: The form of text in a user message: a string, or a list of parts.
TextForm = Literal["string", "parts"]

HELLO: Final = "Say hello in one word."
WEATHER_IN_PARIS: Final = "What is the weather in Paris? Call get_weather."
WEATHER_IN_TWO_CITIES: Final = (
    'Do two things at once: call get_weather {"city":"Paris"} and call get_weather {"city":"Rome"}'
)
PERSON_AS_JSON: Final = "Alice is 30 years old. Give her name and age as JSON."
COUNTING: Final = (
    "Count from one to one hundred in English words, one number after another with commas between them, "
    "and do not stop before the end is reached."
)
CALL_AS_TEXT: Final = '[Tool Call: get_weather({"city":"Paris"}) -> call_id: call_probe_1]'
RESULT_AS_TEXT: Final = "[Tool Result for call_probe_1]: "
ARGUMENTS: Final = '{"city":"Paris"}'
CITY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PERSON: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
#: A red square of eight pixels by eight.
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
#: A minimal PDF.
PDF: Final = (
    "JVBERi0xLjAKMSAwIG9iajw8L1R5cGUvQ2F0YWxvZy9QYWdlcyAyIDAgUj4+ZW5kb2JqIDIgMCBvYmo8PC9UeXBlL1BhZ2VzL0tp"
    "ZHNbXS9Db3VudCAwPj5lbmRvYmoKdHJhaWxlcjw8L1Jvb3QgMSAwIFI+Pgo="
)
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")
#: The numbers that are tried first: one tool more than the usual limit, and the longest names and ids that are sent.
MOST_TOOLS: Final = 129
LONGEST_NAME: Final = 64
LONGEST_ID: Final = 64


#: The parameters of tools that only count.
NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


def probe_name(number: int) -> str:
    """The name of a tool beside others."""
    return f"get_weather_{number}"


def long_name(length: int) -> str:
    return ("get_weather_" + "x" * length)[:length]


def long_id(length: int) -> str:
    return ("call_" + "x" * length)[:length]
