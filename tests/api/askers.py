"""A client of each dialect that a gateway answers besides the hub's own: where it asks, in what form, and how it reads
answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
from msgspec import Struct
from tests.running import Running

from antiphon import sse


class Asker(Struct, frozen=True, kw_only=True):
    """One dialect, as its clients speak it."""

    dialect: str
    path: str
    stream_path: str
    asked: dict[str, Any]  # one turn of the user's
    streamed: dict[str, Any]
    count_path: str = ""
    tools: dict[str, Any]  # members that offer `get_weather`
    lossy: dict[str, Any]  # members of which something is lost at a chat server
    key_header: str = "authorization"
    text_in: Callable[[Any], str]  # of a whole answer
    call_in: Callable[[Any], tuple[str, str, Any]]  # id, name and arguments, of a whole answer
    piece_in: Callable[[Any], str]  # of one frame of a stream
    wrong: dict[str, Any]  # members that are refused

    def ask(self, gateway: Running, **headers: str) -> httpx2.Response:
        return gateway.post(self.asked, self.path, **headers)

    def stream(self, gateway: Running, **headers: str) -> httpx2.Response:
        return gateway.post(self.streamed, self.stream_path, **headers)

    def key(self, key: str) -> dict[str, str]:
        return {self.key_header: f"Bearer {key}" if self.key_header == "authorization" else key}

    def error_in(self, answer: httpx2.Response) -> dict[str, Any]:
        """What an error has in the form of this dialect: type, code and words."""
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"].startswith("req_")
        return self.error_of(answer.json(), answer.status_code)

    def error_of(self, body: Any, status: int) -> dict[str, Any]:
        error = body["error"]
        match self.dialect:
            case "chat":
                assert set(error) == {"message", "type", "param", "code"}
                return {"type": error["type"], "code": error["code"], "message": error["message"]}
            case "messages":
                assert body["type"] == "error"
                return {"type": error["type"], "code": error["code"], "message": error["message"]}
            case _:
                assert error["code"] == status
                reason = next(detail["reason"] for detail in error["details"] if "reason" in detail)
                return {"type": error["status"], "code": reason, "message": error["message"]}

    def frames(self, answer: httpx2.Response) -> list[Any]:
        """The frames of a stream, without the one that says nothing but that it ends."""
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [
            msgspec.json.decode(frame.data) for frame in sse.Decoder().feed(answer.content) if frame.data != sse.DONE
        ]

    def text_of(self, answer: httpx2.Response) -> str:
        return "".join(self.piece_in(frame) for frame in self.frames(answer))


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GRAMMAR = {"syntax": "regex", "definition": "a+"}
FUNCTION = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}
SAID: Any = [{"role": "user", "content": "Say hello."}]


def _chat_call(body: Any) -> tuple[str, str, Any]:
    [call] = body["choices"][0]["message"]["tool_calls"]
    return call["id"], call["function"]["name"], msgspec.json.decode(call["function"]["arguments"])


def _messages_call(body: Any) -> tuple[str, str, Any]:
    [call] = [block for block in body["content"] if block["type"] == "tool_use"]
    return call["id"], call["name"], call["input"]


def _gemini_call(body: Any) -> tuple[str, str, Any]:
    [call] = [part["functionCall"] for part in body["candidates"][0]["content"]["parts"] if "functionCall" in part]
    return call["id"], call["name"], call["args"]


def _gemini_text(body: Any) -> str:
    parts = [part for each in body.get("candidates", []) for part in each.get("content", {}).get("parts", [])]
    return "".join(part.get("text", "") for part in parts if not part.get("thought"))


CHAT = Asker(
    dialect="chat",
    path="/v1/chat/completions",
    stream_path="/v1/chat/completions",
    asked={"model": "mock-1", "messages": SAID},
    streamed={"model": "mock-1", "messages": SAID, "stream": True},
    tools={"tools": [{"type": "function", "function": FUNCTION}]},
    lossy={"tools": [{"type": "custom", "custom": {"name": "run", "format": {"type": "grammar", "grammar": GRAMMAR}}}]},
    text_in=lambda body: body["choices"][0]["message"]["content"],
    call_in=_chat_call,
    piece_in=lambda frame: "".join(choice["delta"].get("content") or "" for choice in frame["choices"]),
    wrong={"temperature": "hot"},
)
MESSAGES = Asker(
    dialect="messages",
    path="/v1/messages?beta=true",
    stream_path="/v1/messages?beta=true",
    asked={"model": "mock-1", "max_tokens": 100, "messages": SAID},
    streamed={"model": "mock-1", "max_tokens": 100, "messages": SAID, "stream": True},
    count_path="/v1/messages/count_tokens?beta=true",
    tools={"tools": [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}]},
    lossy={
        "tools": [
            {"type": "web_search_20250305", "name": "web_search"},
            {"name": "get_weather", "input_schema": SCHEMA},
        ]
    },
    key_header="x-api-key",
    text_in=lambda body: "".join(block["text"] for block in body["content"] if block["type"] == "text"),
    call_in=_messages_call,
    piece_in=lambda frame: frame.get("delta", {}).get("text", ""),
    wrong={"temperature": "hot"},
)
GEMINI = Asker(
    dialect="gemini",
    path="/v1beta/models/mock-1:generateContent",
    stream_path="/v1beta/models/mock-1:streamGenerateContent?alt=sse",
    asked={"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]},
    streamed={"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]},
    count_path="/v1beta/models/mock-1:countTokens",
    tools={"tools": [{"functionDeclarations": [FUNCTION]}]},
    lossy={"tools": [{"googleSearch": {}}]},
    key_header="x-goog-api-key",
    text_in=_gemini_text,
    call_in=_gemini_call,
    piece_in=_gemini_text,
    wrong={"contents": 7},
)
ASKERS = [CHAT, MESSAGES, GEMINI]
