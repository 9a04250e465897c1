"""Chat requests as clients send them, and servers of every habit.

`bodies()` are legal bodies that the hub can carry whole; every text in one is unlike every other (see `conversations`).
`wires()` are all options of `ChatWire`, in any mixture.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.generate.conversations import CALL_IDS, LETTERS, NAMES

from antiphon.dialects.chat.wire import ChatWire

FIELDS = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "reasoning_effort",
    "top_logprobs",
    "logprobs",
    "user",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "verbosity",
)
#: The API of its maker: everything has a place.
RICH = ChatWire(
    max_tokens="max_completion_tokens",
    developer="developer",
    reasoning_field="reasoning_content",
    reasoning_history="all",
    tool_images="keep",
    custom_tools="native",
    fields=FIELDS,
)


def wires(**fixed: Any) -> st.SearchStrategy[ChatWire]:
    """Servers of every habit but one: all have some way to write JSON, or REQ-1 would refuse half of all requests."""
    options: dict[str, st.SearchStrategy[Any]] = {
        "max_tokens": st.sampled_from(["max_tokens", "max_completion_tokens"]),
        "developer": st.sampled_from(["developer", "system"]),
        "system": st.sampled_from(["anywhere", "first"]),
        "text_content": st.sampled_from(["string", "parts"]),
        "empty_content": st.sampled_from(["null", "empty", "absent"]),
        "reasoning_field": st.sampled_from(["reasoning_content", "reasoning", "none"]),
        "reasoning_history": st.sampled_from(["tool_loop", "all"]),
        "missing_reasoning": st.sampled_from(["absent", "blank"]),
        "tool_images": st.sampled_from(["lift", "keep"]),
        "images": st.booleans(),
        "custom_tools": st.sampled_from(["function", "native"]),
        "orphan_outputs": st.sampled_from(["synthesize", "text"]),
        "json_output": st.sampled_from(["json_schema", "json_object"]),
        "forced_tools": st.sampled_from(["native", "schema", "none"]),
        "free_tools": st.booleans(),
        "strict_tools": st.booleans(),
        "stream_usage": st.booleans(),
        "fields": st.sampled_from([FIELDS, FIELDS[:4], ()]),
        "extra_fields": st.sampled_from([(), ("top_k",)]),
    }
    wires = st.builds(ChatWire, **{**options, **{name: st.just(value) for name, value in fixed.items()}})
    return wires.filter(_is_consistent)


def _is_consistent(wire: ChatWire) -> bool:
    """A forced call that is written as a schema of the text needs a server that takes such schemas."""
    return wire.forced_tools != "schema" or wire.json_output == "json_schema"


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A body as JSON."""
    return _Client(draw).body()


class _Client:
    """Writes one body; counts its texts."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0

    def body(self) -> dict[str, Any]:
        tools = self._tools()
        optional: dict[str, list[Any]] = {
            "temperature": [0, 0.7],
            "top_p": [0.5],
            "presence_penalty": [-1],
            "frequency_penalty": [1.5],
            "max_completion_tokens": [1, 4096],
            "reasoning_effort": ["low", "none", "a word of one server"],
            "verbosity": ["low"],
            "service_tier": ["flex", "on_demand"],
            "metadata": [{"session": "s"}],
            "safety_identifier": ["who"],
            "prompt_cache_key": ["key"],
            "user": ["u"],
            "stop": [["x"]],
            "seed": [7],
            "logit_bias": [{"50256": -100}],
            "response_format": [{"type": "json_object"}, self._schema(), {"type": "grammar", "grammar": "root ::= x"}],
        }
        body = {name: self._one(*values) for name, values in optional.items() if self._one(False, True)}
        if tools:
            body |= {"tools": tools, "tool_choice": self._choice(tools)}
            body |= self._one({}, {"parallel_tool_calls": False})
        body |= self._one({}, {"stream": True, "stream_options": {"include_usage": True}}, {"stream": False})
        body |= self._one({}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2})
        return {"model": "m", "messages": self._messages(), **body}

    def text(self) -> str:
        self._count += 1
        return f"{self._draw(LETTERS)}‹{self._count}›"

    def _one(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def _messages(self) -> list[dict[str, Any]]:
        kinds = [self._user, self._system, self._assistant, self._calls]
        steps = self._draw(st.lists(st.sampled_from(kinds), max_size=6))
        return [message for step in [*steps, self._user] for message in step()]

    def _user(self) -> list[dict[str, Any]]:
        parts = [
            {"type": "text", "text": self.text()},
            {"type": "image_url", "image_url": {"url": f"https://i/{self.text()}"}},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{self.text()}", "detail": "low"}},
            {"type": "file", "file": {"file_data": self.text(), "filename": "f.txt"}},
            {"type": "file", "file": {"file_id": self.text()}},
            {"type": "input_audio", "input_audio": {"data": self.text(), "format": "wav"}},
        ]
        content = self._draw(st.lists(st.sampled_from(parts), min_size=1, max_size=3, unique_by=str))
        return [{"role": "user", "content": self._one("", self.text(), content)}]

    def _system(self) -> list[dict[str, Any]]:
        parts = [{"type": "text", "text": self.text()} for _ in range(self._one(1, 2))]
        return [{"role": self._one("system", "developer"), "content": self._one(self.text(), parts)}]

    def _assistant(self) -> list[dict[str, Any]]:
        parts = [{"type": "text", "text": self.text()} for _ in range(self._one(1, 2))]
        message = {"role": "assistant", "content": self._one(self.text(), parts)}
        return [message | self._one({}, {"reasoning_content": self.text()}, {"refusal": self.text()})]

    def _calls(self) -> list[dict[str, Any]]:
        ids = self._draw(st.lists(CALL_IDS, min_size=1, max_size=3, unique=True))
        message = {
            "role": "assistant",
            "content": self._one(None, self.text()),
            "tool_calls": [self._call(id) for id in ids],
        }
        parts = [
            {"type": "text", "text": self.text()},
            {"type": "image_url", "image_url": {"url": f"https://i/{self.text()}"}},
        ]
        results = [{"role": "tool", "tool_call_id": id, "content": self._one("", self.text(), parts)} for id in ids]
        return [message | self._one({}, {"reasoning_content": self.text()}), *results]

    def _call(self, id: str) -> dict[str, Any]:
        name = self._draw(NAMES)
        custom = {"type": "custom", "custom": {"name": name, "input": self.text()}}
        return {"id": id, **self._one(custom, {"type": "function", "function": {"name": name, "arguments": '{"q":1}'}})}

    def _tools(self) -> list[dict[str, Any]]:
        names = self._draw(st.lists(NAMES, max_size=3, unique=True))
        return [self._tool(name) for name in names]

    def _tool(self, name: str) -> dict[str, Any]:
        grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": self.text()}}
        function = {
            "name": name,
            "description": self.text(),
            "parameters": {"type": "object"},
            "strict": self._one(True, False),
        }
        custom = {"name": name, "description": self.text(), "format": self._one({"type": "text"}, grammar)}
        kind, tool = self._one(("function", function), ("custom", custom))
        return {"type": kind, kind: tool}

    def _choice(self, tools: list[dict[str, Any]]) -> Any:
        kind = tools[0]["type"]
        return self._one("auto", "none", "required", {"type": kind, kind: {"name": tools[0][kind]["name"]}})

    def _schema(self) -> dict[str, Any]:
        schema = {
            "name": "answer",
            "description": self.text(),
            "schema": {"type": "object"},
            "strict": self._one(True, False),
        }
        return {"type": "json_schema", "json_schema": schema}
