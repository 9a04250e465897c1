"""The servers behind the gateway while a real client works: strict ones, each under the profile of a well-known
provider.

The model follows a plan by how many results it has been given, so a client may ask for a title or a summary in between. What a
server was sent is read into one form, whatever its dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from tests.running import Running, running

from antiphon import config, testing
from antiphon.dialects.dialect import ServerDialectName
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, ReceivedRequest, Reply, ResponsesServer, turn
from antiphon.testing.harness import FakeServer

ASIDE = "A friendlier greeting"
#: The replies of a model: by the number of results in the request, or by the request itself.
Plan = Mapping[int, Reply] | Callable[[ReceivedRequest], Reply]


class Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]


class Conversation(NamedTuple):
    """What a server was sent: the tools it may call, its calls, their results by id, how many of its thoughts came back,
    and the ids of results that are marked as errors by the API."""

    tools: list[str]
    calls: list[Call]
    results: list[tuple[str, str]]
    thoughts: int
    marked: Sequence[str] = ()

    @property
    def failures(self) -> list[str]:
        """The ids of the results of failed tools: marked by the API, or by text where the API has no mark."""
        return [*self.marked, *(id for id, text in self.results if text.startswith("[tool error] "))]


class Behind(NamedTuple):
    """One kind of server, and how to read what it was sent."""

    dialect: ServerDialectName
    profile: str
    serve: Callable[[Callable[[ReceivedRequest], Reply]], FakeServer]
    read: Callable[[dict[str, Any]], Conversation]

    @contextmanager
    def gateway(
        self,
        plan: Plan,
        kept_in: str = "off",
        statuses: Collection[int] = (200,),
        aside: str = ASIDE,
        refusals: int = 0,
    ) -> Iterator[tuple[Running, FakeServer]]:
        """A gateway before such a server, whose model replies by the plan. Requests without tools are answered with
        `aside`. At the end, the server must have refused so many requests, and the client must have got these statuses and
        no others."""

        def reply(received: ReceivedRequest) -> Reply:
            conversation = self.read(received.json)
            if not conversation.tools:
                return turn(testing.text(aside))
            return plan(received) if callable(plan) else plan[len(conversation.results)]

        with self.serve(reply) as upstream:
            served = config.UpstreamConfig(
                name="lab", dialect=self.dialect, base_url=upstream.base_url, models=["*"], profile=self.profile
            )
            with running(config.Config(upstreams=[served], store=config.StoreConfig(url=kept_in))) as gateway:
                yield gateway, upstream
                assert len(upstream.refusals) == refusals, [refused.body for refused in upstream.refusals]
                assert {line["status"] for line in gateway.requests(1)} == set(statuses)

    def turns(self, upstream: FakeServer) -> list[Conversation]:
        """What it was sent of the loop of tools, turn by turn."""
        return [told for told in map(self.read, (received.json for received in upstream.received)) if told.tools]


def call(id: str, name: str, **arguments: Any) -> Any:
    """A call in pieces of seven characters, so that escapes are cut in two."""
    text = msgspec.json.encode(arguments).decode()
    return testing.tool_call(id, name, *(text[at : at + 7] for at in range(0, len(text), 7)))


def _read_chat(body: dict[str, Any]) -> Conversation:
    messages = body["messages"]
    called = [call for message in messages for call in message.get("tool_calls") or ()]
    return Conversation(
        tools=[tool["function"]["name"] for tool in body.get("tools") or ()],
        calls=[Call(call["id"], call["function"]["name"], _object(call["function"]["arguments"])) for call in called],
        results=[
            (message["tool_call_id"], _text(message["content"])) for message in messages if message["role"] == "tool"
        ],
        thoughts=sum(message.get("reasoning_content", " ") != " " for message in messages),
    )


def _read_messages(body: dict[str, Any]) -> Conversation:
    contents = [message["content"] for message in body["messages"]]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return Conversation(
        tools=[tool["name"] for tool in body.get("tools") or ()],
        calls=[Call(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        results=[(block["tool_use_id"], _text(block["content"])) for block in blocks if block["type"] == "tool_result"],
        thoughts=sum(block["type"] == "thinking" for block in blocks),
        marked=[block["tool_use_id"] for block in blocks if block["type"] == "tool_result" and block.get("is_error")],
    )


def _read_responses(body: dict[str, Any]) -> Conversation:
    given = body["input"] if isinstance(body["input"], list) else []
    items = [{"type": "message", **item} for item in given]  # messages of clients of the same API may have no type
    called = [item for item in items if item["type"] in ("function_call", "custom_tool_call")]
    outputs = [item for item in items if item["type"] in ("function_call_output", "custom_tool_call_output")]
    return Conversation(
        tools=[tool.get("name", tool["type"]) for tool in body.get("tools") or ()],
        calls=[
            Call(
                item["call_id"],
                item["name"],
                _object(item["arguments"]) if "arguments" in item else {"input": item["input"]},
            )
            for item in called
        ],
        results=[(item["call_id"], _text(item["output"])) for item in outputs],
        thoughts=sum(item["type"] == "reasoning" and "encrypted_content" in item for item in items),
    )


def _read_gemini(body: dict[str, Any]) -> Conversation:
    parts = [part for content in body["contents"] for part in content["parts"]]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    results = [part["functionResponse"] for part in parts if "functionResponse" in part]
    return Conversation(
        tools=[
            function["name"] for tool in body.get("tools") or () for function in tool.get("functionDeclarations") or ()
        ],
        calls=[Call(call.get("id", ""), call["name"], call.get("args") or {}) for call in calls],
        results=[(result.get("id", ""), _gemini_result(result["response"])) for result in results],
        thoughts=sum("thoughtSignature" in part for part in parts),
    )


def _gemini_result(response: dict[str, Any]) -> str:
    """The text of a result, with the mark of an error that other servers get."""
    if "error" in response:
        return f"[tool error] {response['error']}"
    return str(response.get("output", response.get("result", response)))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _object(arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(arguments)
    return found


CHAT = Behind(
    "chat", "deepseek", lambda script: ChatServer(script, strict_fields=True, wants_reasoning=True), _read_chat
)
MESSAGES = Behind("messages", "anthropic", lambda script: MessagesServer(script, system_messages=True), _read_messages)
PLAIN_MESSAGES = Behind("messages", "messages", MessagesServer, _read_messages)
RESPONSES = Behind("responses", "openai", lambda script: ResponsesServer(script, strict_fields=True), _read_responses)
OPEN_RESPONSES = Behind("responses", "open-responses", ResponsesServer, _read_responses)
GEMINI = Behind("gemini", "google", GeminiServer, _read_gemini)
SERVERS = [CHAT, MESSAGES, RESPONSES]
