"""The strict fakes as servers of the matrix: what each says is a script, what each was told is read into neutral form.

Each plays the API of its maker: unknown fields are refused, and so is a tool loop in which its thoughts are missing or not its own.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from tests.matrix.neutral import Call, Image, Result, Text, Told, User
from tests.matrix.scenarios import SIGNATURE

from antiphon import sse, testing
from antiphon.testing import (
    ChatServer,
    GeminiServer,
    MessagesServer,
    OllamaServer,
    ReceivedRequest,
    Reply,
    ResponsesServer,
)
from antiphon.testing.gemini.errors import error_frame
from antiphon.testing.gemini.signatures import PLACEHOLDERS
from antiphon.testing.harness import FakeServer
from antiphon.testing.messages.errors import error_event
from antiphon.testing.script import TurnElement as Scripted

THOUGHT: Final = "I should look it up."


class Kind(Struct, frozen=True, kw_only=True):
    """One dialect's server."""

    dialect: Any
    model: str
    profile: str
    make: Callable[..., FakeServer]
    told: Callable[[dict[str, Any]], list[Told]]  # the conversation in a request
    thoughts: Callable[
        [dict[str, Any]], list[str]
    ]  # what comes back of its reasoning, in the form that only it can have made
    own: str  # and what that must be
    schema: Callable[[dict[str, Any]], Any]  # of the output
    fault: bytes  # an error in the middle of a stream
    lifted: str = ""  # what an image is called that no result may hold

    @property
    def accepts_plain_thoughts(self) -> bool:
        """Whether it accepts reasoning without a seal."""
        return self.own == THOUGHT


class Server:
    """A running fake that says what it is told to, cell by cell."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._replies: deque[Reply] = deque()
        self.fake = kind.make(self._next)

    def begin(self, replies: list[Reply]) -> None:
        """A new cell."""
        self._replies = deque(replies)
        self.fake.received.clear()
        self.fake.refusals.clear()

    def body(self, turn: int) -> dict[str, Any]:
        """What it was asked in a turn."""
        body: dict[str, Any] = self.fake.received[turn].json
        return body

    def broken(self, said: list[Scripted], gate: testing.Gate) -> Reply:
        """An answer that breaks off behind the gate: in a stream with an error of this dialect, else in the middle of
        the body."""
        return testing.turn(said[0], testing.wait(gate), testing.raw(self.kind.fault), testing.end("fin"))

    def _next(self, _: ReceivedRequest) -> Reply:
        return self._replies.popleft()


def _responses_told(body: dict[str, Any]) -> list[Told]:
    told: list[Told] = []
    names: dict[str, str] = {}
    for item in body["input"]:
        match item:
            case {"type": "function_call"}:
                names[item["call_id"]] = item["name"]
                told.append(Call(item["call_id"], item["name"], json.loads(item["arguments"])))
            case {"type": "function_call_output", "call_id": id, "output": str() as text}:
                told.append(Result(id, names[id], text))
            case {"type": "function_call_output", "call_id": id, "output": parts}:
                told += _shown(id, names[id], [part["text"] for part in parts if "text" in part], _openai_images(parts))
            case {"role": "assistant", "content": content}:
                told += [Text(part["text"]) for part in content]
            case {"role": "user", "content": str() as text}:
                told.append(User(text))
            case {"role": "user", "content": content}:
                told += [User(part["text"]) for part in content if "text" in part] + _openai_images(content)
    return told


def _chat_told(body: dict[str, Any]) -> list[Told]:
    told: list[Told] = []
    names: dict[str, str] = {}
    for message in body["messages"]:
        content = message.get("content")
        match message["role"]:
            case "user" if isinstance(content, str):
                told.append(User(content))
            case "user":
                told += [User(part["text"]) for part in content if "text" in part] + _openai_images(content)
            case "assistant":
                told += [Text(content)] if content else []
                for call in message.get("tool_calls") or ():
                    names[call["id"]] = call["function"]["name"]
                    told.append(Call(call["id"], names[call["id"]], json.loads(call["function"]["arguments"])))
            case "tool":
                told.append(Result(message["tool_call_id"], names[message["tool_call_id"]], content))
    return told


def _messages_told(body: dict[str, Any]) -> list[Told]:
    told: list[Told] = []
    names: dict[str, str] = {}
    for message in body["messages"]:
        for block in message["content"]:
            match block["type"]:
                case "text":
                    told.append(User(block["text"]) if message["role"] == "user" else Text(block["text"]))
                case "image":
                    told.append(Image(block["source"]["data"]))
                case "tool_use":
                    names[block["id"]] = block["name"]
                    told.append(Call(block["id"], block["name"], block["input"]))
                case "tool_result":
                    parts = block["content"] if isinstance(block["content"], list) else [{"text": block["content"]}]
                    images: list[Told] = [Image(part["source"]["data"]) for part in parts if "source" in part]
                    texts = [part["text"] for part in parts if "text" in part]
                    told += _shown(block["tool_use_id"], names[block["tool_use_id"]], texts, images)
    return told


def _gemini_told(body: dict[str, Any]) -> list[Told]:
    told: list[Told] = []
    for content in body["contents"]:
        for part in content["parts"]:
            match part:
                case {"text": text} if text and not part.get("thought"):
                    if content["role"] == "user":
                        told.append(User(text))
                    elif told and isinstance(told[-1], Text):  # a client may send the pieces of a text back
                        told[-1] = Text(told[-1].text + text)
                    else:
                        told.append(Text(text))
                case {"inlineData": {"data": data}}:
                    told.append(Image(data.translate(PLAIN_BASE64)))
                case {"functionCall": call}:
                    told.append(Call(call["id"], call["name"], call["args"]))
                case {"functionResponse": given}:
                    images: list[Told] = [
                        Image((part.get("inlineData") or part["inline_data"])["data"].translate(PLAIN_BASE64))
                        for part in given.get("parts", ())
                    ]
                    told += _shown(given["id"], given["name"], [given["response"]["output"]], images)
    return told


def _gemini_schema(body: dict[str, Any]) -> dict[str, Any]:
    """The output schema in either form: a client of the same dialect keeps its own."""
    config = body["generationConfig"]
    schema: dict[str, Any] = config.get("responseJsonSchema") or config["responseSchema"]
    return schema


def _ollama_told(body: dict[str, Any]) -> list[Told]:
    told: list[Told] = []
    call_ids: list[str] = []
    for message in body["messages"]:
        content = message.get("content", "")
        match message["role"]:
            case "user":
                told += [User(content)] if content else []
                told += [Image(data) for data in message.get("images", ())]
            case "assistant":
                told += [Text(content)] if content else []
                for number, call in enumerate(message.get("tool_calls", ())):
                    # Clients may leave out ids. The gateway counts such calls.
                    call_ids.append(call.get("id", f"call_1_{number}"))
                    told.append(Call(call_ids[-1], call["function"]["name"], call["function"]["arguments"]))
            case "tool":
                told.append(Result(message.get("tool_call_id") or call_ids.pop(0), message["tool_name"], content))
    return told


def _shown(id: str, name: str, texts: list[str], images: list[Told]) -> list[Told]:
    return [Result(id, name, "".join(texts)), *images]


def _openai_images(parts: list[dict[str, Any]]) -> list[Told]:
    urls = [part["image_url"] for part in parts if "image_url" in part]
    return [Image((url if isinstance(url, str) else url["url"]).partition("base64,")[2]) for url in urls]


def _messages_thoughts(body: dict[str, Any]) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"] if block["type"] == "thinking"]
    return [f"{block['thinking']} {block['signature']}" for block in blocks]


def _gemini_signatures(body: dict[str, Any]) -> list[str]:
    signatures = [
        part["thoughtSignature"] for each in body["contents"] for part in each["parts"] if "thoughtSignature" in part
    ]
    return [signature for signature in signatures if signature not in PLACEHOLDERS]


KINDS: Final = [
    Kind(
        dialect="responses",
        model="responses-1",
        profile="openai",
        make=lambda script: ResponsesServer(script, strict_fields=True),
        told=_responses_told,
        # What is sealed is the server's own affair: it refuses what it has not made. That it is there is what is looked
        # at.
        thoughts=lambda body: ["sealed" for item in body["input"] if item.get("encrypted_content")],
        own="sealed",
        schema=lambda body: body["text"]["format"]["schema"],
        fault=sse.encode_frame("error", b'{"type":"error","code":"server_error","message":"overloaded","param":null}'),
    ),
    Kind(
        dialect="chat",
        model="chat-1",
        profile="chat-that-thinks.toml",
        make=lambda script: ChatServer(script, strict_fields=True),
        told=_chat_told,
        thoughts=lambda body: [each["reasoning_content"] for each in body["messages"] if each.get("reasoning_content")],
        own=THOUGHT,
        schema=lambda body: body["response_format"]["json_schema"]["schema"],
        lifted="image",
        fault=sse.encode_data(b'{"error":{"message":"overloaded","type":"server_error","code":503}}'),
    ),
    Kind(
        dialect="messages",
        model="messages-1",
        profile="anthropic",
        make=lambda script: MessagesServer(script, system_messages=True),
        told=_messages_told,
        thoughts=_messages_thoughts,
        own=f"{THOUGHT} {SIGNATURE}",
        schema=lambda body: body["output_config"]["format"]["schema"],
        fault=error_event(),
    ),
    Kind(
        dialect="gemini",
        model="gemini-3-1",
        profile="google",
        make=GeminiServer,
        told=_gemini_told,
        thoughts=_gemini_signatures,
        own=SIGNATURE,
        schema=_gemini_schema,
        fault=error_frame(503, "overloaded"),
    ),
    Kind(
        dialect="ollama",
        model="ollama-1",
        profile="ollama-native",
        make=OllamaServer,
        told=_ollama_told,
        thoughts=lambda body: [each["thinking"] for each in body["messages"] if each.get("thinking")],
        own=THOUGHT,
        schema=lambda body: body["format"],
        fault=b'{"error":"overloaded"}\n',
        lifted="image",
    ),
]

#: Both forms of base64 are valid in Gemini requests.
PLAIN_BASE64 = str.maketrans("-_", "+/")
