"""The official `google-genai` SDK reads our answers for clients of its API, and we read its requests.

A small server on loopback returns answers that the dialect encoded; no gateway is needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google import genai
from google.genai import errors, types
from hypothesis import HealthCheck, given, settings
from tests.dialects.gemini.client_stream import REQUEST, USAGE, GeminiWriter, stream_to_client
from tests.dialects.gemini.test_stream_out import calls_of, squeezed, thoughts_of, words_of
from tests.generate.events import lives

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.gemini import error_from_hub, request_to_hub, response_from_hub
from antiphon.errors import InvalidValue, UpstreamFault
from antiphon.protocol.events import ErrorEvent, StreamEvent, TerminalEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, MessageParam, ReasoningParam
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.tools import FunctionToolParam

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
SAFETY = types.SafetySetting(
    category=types.HarmCategory.HARM_CATEGORY_HARASSMENT, threshold=types.HarmBlockThreshold.BLOCK_NONE
)
SLOWLY = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


class Served:
    """The answers to send, and the received requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str, bytes]] = []
        self.bodies: list[bytes] = []

    def asked(self) -> Request:
        """The last body, in the hub."""
        return request_to_hub(self.bodies[-1])[0]


class _Handler(BaseHTTPRequestHandler):
    served: Served

    def do_POST(self) -> None:
        self.served.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        status, kind, body = self.served.answers.pop(0)
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


@pytest.fixture(scope="module")
def served_and_client() -> Iterator[tuple[Served, Any]]:
    served = Served()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"served": served}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    client = genai.Client(api_key="k", http_options={"base_url": f"http://127.0.0.1:{server.server_port}"})
    yield served, client
    client.close()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def served(served_and_client: tuple[Served, Any]) -> Served:
    return served_and_client[0]


@pytest.fixture
def client(served_and_client: tuple[Served, Any]) -> Any:
    return served_and_client[1]


def parts_of(answers: list[Any]) -> list[Any]:
    return [part for answer in answers for part in answer.candidates[0].content.parts]


def texts_of(parts: list[Any], *, thought: bool) -> str:
    return "".join(part.text for part in parts if part.text and bool(part.thought) is thought)


def streamed(served: Served, client: Any, data: bytes) -> tuple[list[Any], Any]:
    """The answers that the SDK yields, and the error that it raises at the end."""
    served.answers.append((200, "text/event-stream", data))
    answers: list[Any] = []
    try:
        for answer in client.models.generate_content_stream(model="m", contents="hi"):
            answers.append(answer)  # answers before an error count
    except errors.APIError as error:
        return answers, error
    return answers, None


@settings(max_examples=30, suppress_health_check=SLOWLY, deadline=None)
@given(events=lives())
def test_genai_sdk_reads_every_stream(served: Served, client: Any, events: list[StreamEvent]) -> None:
    """Law (d) with the official client: text, reasoning, calls, and every failure as an error."""
    answers, error = streamed(served, client, stream_to_client(events).data)
    parts = parts_of(answers)
    assert squeezed(texts_of(parts, thought=False)) == squeezed(words_of(events))
    assert squeezed(texts_of(parts, thought=True)) == squeezed(thoughts_of(events))
    names = [(call.name.rpartition("__")[2], call.args) for part in parts if (call := part.function_call)]
    expected_calls = [
        (name, {"input": given} if kind == "custom" else given) for kind, _, name, _, given in calls_of(events)
    ]
    assert names == expected_calls
    has_failed = (
        not events
        or not isinstance(events[-1], TerminalEvent)
        or any(isinstance(event, ErrorEvent) for event in events)
    )
    assert (error is not None) is has_failed
    if error is None:
        assert answers[-1].candidates[0].finish_reason


@settings(max_examples=30, suppress_health_check=SLOWLY, deadline=None)
@given(events=lives(("complete", "incomplete")))
def test_genai_sdk_reads_every_plain_answer(served: Served, client: Any, events: list[StreamEvent]) -> None:
    """STR-14."""
    response: Response = fold_events(events)
    served.answers.append((200, "application/json", response_from_hub(response, REQUEST)[0]))
    answer = client.models.generate_content(model="m", contents="hi")
    parts = parts_of([answer])
    streamed_parts = parts_of(streamed(served, client, stream_to_client(events).data)[0])
    assert sorted(texts_of(parts, thought=False)) == sorted(texts_of(streamed_parts, thought=False))
    assert answer.response_id == "resp_1"
    assert answer.model_version == "m"


def test_genai_sdk_reads_the_usage() -> None:
    """REQ-4: checked by the SDK's own reader, without a server."""
    life = GeminiWriter()
    life.add_text("t", "hi")
    life.complete(USAGE)
    body, _ = response_from_hub(fold_events(life.collector.events), REQUEST)
    usage = types.GenerateContentResponse.model_validate_json(body).usage_metadata
    assert usage
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (30, 8)
    assert (usage.candidates_token_count, usage.thoughts_token_count, usage.total_token_count) == (7, 5, 42)


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (InvalidValue("wrong", param="contents"), "ClientError", "INVALID_ARGUMENT"),
        (UpstreamFault("late", code="upstream_timeout", status=504), "ServerError", "DEADLINE_EXCEEDED"),
    ],
)
def test_genai_sdk_raises_errors_with_their_message(
    served: Served, client: Any, error: Any, kind: str, status: str
) -> None:
    """ERR-2."""
    code, body = error_from_hub(error)
    served.answers.append((code, "application/json", body))
    with pytest.raises(errors.APIError, match=error.message) as caught:
        client.models.generate_content(model="m", contents="hi")
    raised: Any = caught.value
    assert (type(raised).__name__, raised.code, raised.status) == (kind, code, status)


def test_genai_sdk_ignores_blank_lines_but_fails_on_comments(served: Served, client: Any) -> None:
    """HTTP-7: this SDK reads every line that is no data as a piece of JSON."""
    life = GeminiWriter()
    life.add_text("t", "hi")
    life.complete()
    data = life.client_stream().data
    answers, error = streamed(served, client, b"\n" + data.replace(b"\n\n", b"\n\n\n"))
    assert (len(answers), error) == (2, None)
    served.answers.append((200, "text/event-stream", b": waiting\n\n" + data))
    with pytest.raises(errors.UnknownApiResponseError):
        list(client.models.generate_content_stream(model="m", contents="hi"))


def test_genai_sdk_chat_sends_the_whole_history_back(served: Served, client: Any) -> None:
    """RSN-2: reasoning, its seal, text and calls come back as the hub encoded them, from the pieces of a stream."""
    life = GeminiWriter()
    life.add_reasoning("r", "hm")
    sealed = seal_reasoning("maker", {"signature": "ä"})
    life.set_encrypted_content("r", sealed)
    life.close_item("r")
    life.add_text("t", "Let me")
    life.add_text("t", " see.\u2028")
    life.close_item("t")
    for name in ("a", "b"):
        life.open_call(name, name="look", call_id=f"c_{name}")
        life.add_arguments(name, json.dumps({"at": name}))
        life.close_item(name)
    life.complete(USAGE)
    chat = client.chats.create(model="m")
    served.answers += [(200, "text/event-stream", life.client_stream().data)] * 2
    list(chat.send_message_stream("look"))
    results = [
        types.Part(function_response=types.FunctionResponse(id=id, name="look", response={"output": id}))
        for id in ("c_a", "c_b")
    ]
    list(chat.send_message_stream(results))
    items = served.asked().input
    assert isinstance(items, list)
    assert [type(item) for item in items] == [
        MessageParam,
        ReasoningParam,
        MessageParam,
        FunctionCallParam,
        FunctionCallParam,
        FunctionCallOutputParam,
        FunctionCallOutputParam,
    ]
    reasoning, message = items[1], items[2]
    assert isinstance(reasoning, ReasoningParam)
    assert isinstance(message, MessageParam)
    assert reasoning.encrypted_content == sealed
    assert getattr(message.content[0], "text", None) == "Let me see.\u2028"
    assert [(item.call_id, item.output) for item in items if isinstance(item, FunctionCallOutputParam)] == [
        ("c_a", "c_a"),
        ("c_b", "c_b"),
    ]


def test_genai_sdk_settings_are_all_decoded(served: Served, client: Any) -> None:
    """REQ-7: nothing of it is lost on the way to the hub."""
    schema = types.Schema(
        type=types.Type.OBJECT,
        properties={"place": types.Schema(type=types.Type.STRING, min_length=1)},
        required=["place"],
    )
    look = types.FunctionDeclaration(name="look", description="Looks at a place.", parameters=schema)
    image = types.Part.from_bytes(data=b"\xff\xfe", mime_type="image/png")
    life = GeminiWriter()
    life.add_text("t", "{}")
    life.complete()
    served.answers.append((200, "application/json", response_from_hub(fold_events(life.collector.events), REQUEST)[0]))
    client.models.generate_content(
        model="m",
        contents=[
            types.Content(role="user", parts=[types.Part(text="see"), image]),
            types.Part.from_uri(file_uri="https://a.example/x.pdf", mime_type="application/pdf"),
        ],
        config=types.GenerateContentConfig(
            system_instruction="be good",
            temperature=0.5,
            top_k=3,
            stop_sequences=["END"],
            seed=7,
            response_mime_type="application/json",
            response_schema={"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}},
            tools=[
                types.Tool(function_declarations=[look]),
                types.Tool(google_search=types.GoogleSearch()),
            ],
            tool_config=types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY)
            ),
            thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_level=types.ThinkingLevel.LOW),
            safety_settings=[SAFETY],
        ),
    )
    request, losses = request_to_hub(served.bodies[-1])
    assert list(losses) == []
    assert (request.instructions, request.temperature, request.tool_choice) == ("be good", 0.5, "required")
    assert request.reasoning
    assert (request.reasoning.effort, request.reasoning.summary) == ("low", "auto")
    (tool,) = [tool for tool in request.tools or () if isinstance(tool, FunctionToolParam)]
    parameters = {"type": "object", "properties": {"place": {"type": "string", "minLength": 1}}, "required": ["place"]}
    assert tool == FunctionToolParam(name="look", description="Looks at a place.", parameters=parameters, strict=False)
    assert isinstance(request.input, list)
    message = request.input[0]
    assert isinstance(message, MessageParam)
    assert getattr(message.content[1], "image_url", None) == "data:image/png;base64,//4="
    assert set(request.extra or ()) == {"gemini:topK", "gemini:stopSequences", "gemini:seed", "gemini:safetySettings"}
