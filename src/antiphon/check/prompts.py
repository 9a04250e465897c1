"""The turns that the cases share, simple enough for any model."""

from __future__ import annotations

from typing import Any, Final

Body = dict[str, Any]


def user_message(text: str) -> Body:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def function_tool(name: str, parameter: str) -> Body:
    """A flat function tool with one string parameter."""
    parameters = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "name": name,
        "description": f"Looks up the {name[4:]}.",
        "parameters": parameters,
        "strict": True,
    }


WEATHER: Final = function_tool("get_weather", "city")
TIME: Final = function_tool("get_time", "zone")
CALL: Final = {
    "type": "function_call",
    "call_id": "call_check_1",
    "name": "get_weather",
    "arguments": '{"city":"Paris"}',
}
RESULT: Final = {"type": "function_call_output", "call_id": "call_check_1", "output": "Sunny, 21 degrees."}
PIXEL_URL: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5"
    "ErkJggg=="
)
PERSON_SCHEMA: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

# A limit for models that do not stop.
OUTPUT_LIMIT: Final = {"max_output_tokens": 1024}
TEXT: Final[Body] = {"input": [user_message("Say hello in one short sentence.")], **OUTPUT_LIMIT}
TOOL_CALL: Final[Body] = {
    "input": [user_message("What is the weather in Paris? Use the tool.")],
    "tools": [WEATHER],
    "tool_choice": "required",
    **OUTPUT_LIMIT,
}
TWO_CALLS: Final[Body] = {
    "input": [
        user_message('Do two things at once: call get_weather {"city":"Paris"} and call get_time {"zone":"UTC"}')
    ],
    "tools": [WEATHER, TIME],
    "tool_choice": "required",
    "parallel_tool_calls": True,
    **OUTPUT_LIMIT,
}
AFTER_TOOL: Final[Body] = {
    "input": [user_message("What is the weather in Paris?"), CALL, RESULT],
    "tools": [WEATHER],
    **OUTPUT_LIMIT,
}
THINKING: Final[Body] = {"input": [user_message("What is 17 plus 25? Think first.")], "reasoning": {"effort": "low"}}
LIMITED_ANSWER: Final[Body] = {
    "input": [
        user_message(
            "Count from one to one hundred in English words, one number after another with commas between them, "
            "and do not stop before you have reached the end."
        )
    ],
    "max_output_tokens": 16,
}
JSON_SCHEMA: Final[Body] = {
    "input": [user_message("Alice is 30 years old. Give her name and age as JSON.")],
    "text": {"format": {"type": "json_schema", "name": "person", "schema": PERSON_SCHEMA, "strict": True}},
    **OUTPUT_LIMIT,
}

#: The turns whose answers are checked as a whole, with and without streaming.
TURNS: Final[tuple[Body, ...]] = (TEXT, TOOL_CALL, TWO_CALLS, AFTER_TOOL, THINKING, LIMITED_ANSWER, JSON_SCHEMA)
