"""A gateway with two targets for each model, of which the first fails, and clients of every dialect.

An answer is judged by what a client of its dialect reads: one text, one end, no trace of the attempt that failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from msgspec import Struct
from tests.running import Running, running, until
from tests.websocket_client import open_websocket

from antiphon import sse, testing
from antiphon.config import (
    Config,
    HealthConfig,
    ModelConfig,
    RetryConfig,
    StoreConfig,
    TargetConfig,
    Timeouts,
    UpstreamConfig,
)
from antiphon.dialects.common.server_turn import StreamReader
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.protocol.codec import decode_event
from antiphon.protocol.events import StreamEvent, TerminalEvent
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.system_stamps import SYSTEM_STAMPS
from antiphon.testing import (
    ChatServer,
    GeminiServer,
    MessagesServer,
    OllamaServer,
    Reply,
    ResponsesServer,
    end,
    error,
    exactly,
    gemini_error,
    messages_error,
    ollama_error,
    turn,
    whole,
)
from antiphon.testing.gemini.errors import error_body, error_frame
from antiphon.testing.harness import FakeServer
from antiphon.testing.messages.errors import error_event

SERVERS: Final[dict[str, Any]] = {
    "chat": ChatServer,
    "responses": ResponsesServer,
    "messages": MessagesServer,
    "gemini": GeminiServer,
    "ollama": OllamaServer,
}
ERRORS: Final[dict[str, Callable[..., Reply]]] = {
    "chat": error,
    "responses": error,
    "messages": messages_error,
    "gemini": gemini_error,
    "ollama": ollama_error,
}
ERROR_FRAMES: Final[dict[str, bytes]] = {
    "responses": sse.encode_frame("error", b'{"type":"error","code":"server_error","message":"broken","param":null}'),
    "chat": sse.encode_data(b'{"error":{"message":"broken","type":"server_error","code":503}}'),
    "messages": error_event(),
    "gemini": error_frame(503, "broken"),
    "ollama": b'{"error":"broken"}\n',
}
ERROR_BODIES: Final[dict[str, Any]] = {
    "responses": {"error": {"message": "broken", "type": "server_error", "code": "server_error"}},
    "chat": {"error": {"message": "broken", "type": "server_error", "code": 503}},
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "broken"}},
    "gemini": error_body(503, "broken"),
    "ollama": {"error": "broken"},
}
FAULTS: Final = ("refused", "429", "500", "timeout", "cut_before_content", "error_after_opening", "cut_after_content")
CLIENTS: Final = ("responses", "chat", "messages", "gemini", "ollama", "vscode", "websocket", "background")
STREAMING_CLIENTS: Final = ("vscode", "websocket", "background")  # they stream whatever the client says
REFUSED_URL: Final = "http://127.0.0.1:1/v1"  # no server listens there
ANSWER: Final = turn(testing.text("Sec", "ond."), testing.usage(7, 3))


class ClientAnswer(Struct, frozen=True, kw_only=True):
    """What a client has read: the status of the response and its text, or an error."""

    status: str
    text: str = ""
    http_status: int = 200
    headers: dict[str, str] = {}
    usage: tuple[int, int] | None = None


class RoutingLab:
    """Each model is named after the dialect of its first target, and that of its second, as in `chat+gemini`; those of
    `*-refused` have a first target that no server listens at."""

    def __init__(self, gateway: Running, first: dict[str, FakeServer], second: dict[str, FakeServer]) -> None:
        self.gateway = gateway
        self.first = first
        self.second = second
        self.reply: Reply = ANSWER  # of each first target
        self.second_reply: Reply = ANSWER

    def ask(self, client: str, server: str, fault: str, *, stream: bool, second: str | None = None) -> ClientAnswer:
        """A turn whose first target fails. The servers have forgotten all earlier turns. The second target has the same
        dialect unless `second` names another."""
        self.reply = fault_reply(server, fault, stream=stream or client in STREAMING_CLIENTS)
        second = second or server
        for fake in (self.first[server], self.second[second]):
            fake.received.clear()
        for state in self.gateway.services.router.states.values():
            state.wake()
        model = f"{server}+{second}" + ("-refused" if fault == "refused" else "")
        return ASKERS.get(client, ask_over_http)(self.gateway, client, model, stream)

    def turns(self, server: str, second: str | None = None) -> tuple[int, int]:
        """How often each of the two servers was asked."""
        return len(self.first[server].received), len(self.second[second or server].received)


def fault_reply(server: str, fault: str, *, stream: bool) -> Reply:
    match fault:
        case "429" | "500":
            return ERRORS[server](int(fault))
        case "timeout":
            return exactly(end("hang"))
        case "cut_before_content":
            return turn(testing.text(""), end("rst"))  # an opening, and an empty item
        case "error_after_opening":
            if stream:
                return turn(testing.text(""), testing.raw(ERROR_FRAMES[server]), end("fin"))
            return whole(ERROR_BODIES[server])
        case _:
            return turn(testing.text("First "), end("rst"))


@contextmanager
def routing_lab(store: Path | None = None, *, rounds: int = 2, **settings: Any) -> Iterator[RoutingLab]:
    lab: list[RoutingLab] = []
    with ExitStack() as stack:
        first = {name: stack.enter_context(make(lambda _: lab[0].reply)) for name, make in SERVERS.items()}
        second = {name: stack.enter_context(make(lambda _: lab[0].second_reply)) for name, make in SERVERS.items()}
        config = Config(
            upstreams=[*_upstreams("first", first), *_upstreams("second", second), *_upstreams("refused", {})],
            models=[model for first_name in SERVERS for name in SERVERS for model in _models(first_name, name)],
            timeouts=Timeouts(first_byte=1.0),
            health=HealthConfig(min_requests=10_000),
            retry=RetryConfig(rounds=rounds),
            store=StoreConfig(url="off" if store is None else f"sqlite:///{store}/a.db"),
        )
        gateway = stack.enter_context(running(config, **settings))
        lab.append(RoutingLab(gateway, first, second))
        yield lab[0]


def _upstreams(prefix: str, servers: dict[str, FakeServer]) -> list[UpstreamConfig]:
    urls = {name: server.base_url for name, server in servers.items()} or dict.fromkeys(SERVERS, REFUSED_URL)
    return [
        UpstreamConfig(name=f"{prefix}-{name}", dialect=name, base_url=url, models=[f"{prefix}-{name}"])  # type: ignore[arg-type]
        for name, url in urls.items()
    ]


def _models(first: str, second: str) -> list[ModelConfig]:
    name, target = f"{first}+{second}", TargetConfig(upstream=f"second-{second}", model="m", priority=2)
    return [
        ModelConfig(name=name, targets=[TargetConfig(upstream=f"first-{first}", model="m"), target]),
        ModelConfig(name=f"{name}-refused", targets=[TargetConfig(upstream=f"refused-{first}", model="m"), target]),
    ]


# Clients


def ask_over_http(gateway: Running, client: str, model: str, stream: bool) -> ClientAnswer:
    path, body = request_of(client, model, stream=stream)
    response = gateway.post(body, path, anthropic_version="2023-06-01")
    headers = dict(response.headers)
    if response.status_code != 200:
        return ClientAnswer(status="error", http_status=response.status_code, headers=headers)
    hub_response = read_stream(client, response) if stream else read_whole(client, response)
    return _read_response(hub_response, headers)


def request_of(client: str, model: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": new_text()}]
    match client:
        case "responses":
            return "/v1/responses", {"model": model, "input": new_text(), "stream": stream}
        case "chat":
            options = {"stream_options": {"include_usage": True}} if stream else {}
            return "/v1/chat/completions", {"model": model, "messages": messages, "stream": stream, **options}
        case "messages":
            return "/v1/messages", {"model": model, "messages": messages, "stream": stream, "max_tokens": 100}
        case "gemini":
            action = "streamGenerateContent?alt=sse" if stream else "generateContent"
            return f"/v1beta/models/{model}:{action}", {"contents": [{"role": "user", "parts": [{"text": new_text()}]}]}
        case _:
            return "/api/chat", {"model": model, "messages": messages, "stream": stream}


def read_stream(client: str, response: httpx2.Response) -> Response:
    """The response of a stream, as a client of its dialect reads it. A Responses stream is also judged by the
    grammar."""
    if client == "responses":
        check_events(
            [
                decode_event(block.split(b"\ndata: ")[1])
                for block in response.content.split(b"\n\n")
                if b"\ndata: {" in block
            ]
        )
    dialect = SERVER_DIALECTS[client]  # type: ignore[index]
    reader = StreamReader(
        dialect.events_to_hub(Request(stream=True), _initial_response(), SYSTEM_STAMPS, dialect.wire_type()),
        framing=dialect.framing,
    )
    events = [*reader.feed(response.content), *reader.finish()]
    terminal_events = [event for event in events if isinstance(event, TerminalEvent)]
    assert len(terminal_events) == 1
    return terminal_events[0].response


def read_whole(client: str, response: httpx2.Response) -> Response:
    dialect = SERVER_DIALECTS[client]  # type: ignore[index]
    hub_response, _ = dialect.response_to_hub(
        response.content, Request(), _initial_response(), SYSTEM_STAMPS, dialect.wire_type()
    )
    return hub_response


def ask_as_editor(gateway: Running, client: str, model: str, stream: bool) -> ClientAnswer:
    """A turn of VS Code, which is always a stream of lines."""
    del client, stream
    message = {"role": 1, "content": [{"value": new_text()}]}
    response = gateway.post({"model": model, "messages": [message]}, "/v1/vscode/chat")
    headers = dict(response.headers)
    if response.status_code != 200:
        return ClientAnswer(status="error", http_status=response.status_code, headers=headers)
    *parts, last = map(msgspec.json.decode, filter(None, response.content.splitlines()))  # empty lines keep it alive
    text = "".join(part["value"] for part in parts)
    if last["type"] == "error":
        return ClientAnswer(status="failed", text=text, headers=headers)
    usage = (last["usage"]["inputTokens"], last["usage"]["outputTokens"])
    return ClientAnswer(status=last["status"], text=text, headers=headers, usage=usage)


def ask_over_websocket(gateway: Running, client: str, model: str, stream: bool) -> ClientAnswer:
    del client, stream
    messages: list[bytes] = []
    with open_websocket(gateway.port, "/v1/responses") as socket:
        socket.send({"type": "response.create", "model": model, "input": new_text()})
        while not messages or not ENDINGS.search(messages[-1]):
            messages.append(msgspec.json.encode(socket.receive_json()))
    if b'"type":"error"' in messages[0]:
        return ClientAnswer(status="error", http_status=msgspec.json.decode(messages[0])["status"])
    events = [decode_event(message) for message in messages]
    return _read_response(check_events(events), {})


def ask_in_background(gateway: Running, client: str, model: str, stream: bool) -> ClientAnswer:
    """Polls the response, or reads its stream."""
    del client
    created = gateway.post({"model": model, "input": new_text(), "background": True}).json()
    path = f"/v1/responses/{created['id']}"
    until(lambda: gateway.get(path).json()["status"] not in ("queued", "in_progress"))
    if stream:
        return _read_response(read_stream("responses", gateway.get(f"{path}?stream=true")), {})
    return _read_response(read_whole("responses", gateway.get(path)), {})


def check_events(events: list[StreamEvent]) -> Response:
    assert find_violations(events) == []
    assert isinstance(events[-1], TerminalEvent)
    return events[-1].response


def _read_response(response: Response, headers: dict[str, str]) -> ClientAnswer:
    items = msgspec.json.decode(msgspec.json.encode(response.output))
    text = "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
    usage = None if response.usage is None else (response.usage.input_tokens, response.usage.output_tokens)
    return ClientAnswer(status=response.status, text=text, headers=headers, usage=usage)


def new_text() -> str:
    """A text that begins a new conversation; one that was answered before would stay with its target."""
    return f"Hi {next(NUMBERS)}."


def _initial_response() -> Response:
    return make_initial_response(Request(), id="resp_1", created_at=0)


ASKERS: Final[dict[str, Callable[[Running, str, str, bool], ClientAnswer]]] = {
    "vscode": ask_as_editor,
    "websocket": ask_over_websocket,
    "background": ask_in_background,
}
NUMBERS: Final = count()
ENDINGS: Final = re.compile(rb'"type":"(response\.(completed|failed|incomplete)|error)"')
