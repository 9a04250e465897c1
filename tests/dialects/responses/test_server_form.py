"""A client of this API gets what a server of this API sent, as the same JSON, except for the ids of the gateway."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.dialects.responses.upstreams import frame_of
from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.responses import EventsFromHub, EventsToHub, ResponsesWire, response_from_hub, response_to_hub
from antiphon.protocol import codec
from antiphon.protocol.grammar import Grammar
from antiphon.protocol.policy import Policy
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.tools import CustomTool, FunctionToolParam

REQUEST = Request(model="m", include=["reasoning.encrypted_content"])
SETTINGS: dict[str, Any] = {
    "id": "resp_server",
    "object": "response",
    "created_at": 1700000000,
    "completed_at": None,
    "status": "in_progress",
    "incomplete_details": None,
    "error": None,
    "usage": None,
    "model": "m-2026-01-01",
    "previous_response_id": None,
    "instructions": None,
    "output": [],
    "tools": [{"type": "web_search", "search_context_size": "medium", "return_token_budget": "default"}],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": False,
    "text": {"format": {"type": "text"}, "verbosity": "medium", "flavour": None},
    "top_p": None,
    "presence_penalty": 0.25,
    "frequency_penalty": 0.5,
    "top_logprobs": 0,
    "temperature": None,
    "reasoning": {"effort": "low", "summary": None, "context": "auto"},
    "max_output_tokens": None,
    "max_tool_calls": 3,
    "store": True,
    "background": False,
    "service_tier": "priority",
    "metadata": {"system_fingerprint": "fp"},
    "safety_identifier": None,
    "prompt_cache_key": "key",
    "billing": {"payer": "developer"},
    "moderation": None,
    "tool_usage": {"web_search": {"num_requests": 1}},
    "content_filters": [{"blocked": False}],
}
USAGE = {
    "input_tokens": 3,
    "output_tokens": 5,
    "total_tokens": 8,
    "input_tokens_details": {"cached_tokens": 1, "audio_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 2},
    "cost": 0.5,
}
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "agent": {"name": "a"}}
PART: dict[str, Any] = {"type": "output_text", "text": "Hi", "annotations": [], "parsed": {"a": 1}}
MESSAGE: dict[str, Any] = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "phase": None,
    "content": [PART],
    "caller": {"type": "direct"},
}
CALL: dict[str, Any] = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": "{}",
    "status": "completed",
    "namespace": None,
}
SEARCH: dict[str, Any] = {"type": "web_search_call", "id": "ws_1", "status": "searching", "action": None}
PROGRAM: dict[str, Any] = {"type": "program", "id": "pg_1", "status": "running", "code": "1"}


def sealed(content: str) -> dict[str, Any]:
    return {**THOUGHT, "encrypted_content": content}


def whole(output: list[dict[str, Any]]) -> dict[str, Any]:
    return {**SETTINGS, "status": "completed", "completed_at": 1700000007, "usage": USAGE, "output": output}


def in_part(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, "item_id": "msg_1", "output_index": 1, "content_index": 0, **members}


def in_call(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, "item_id": "fc_1", "output_index": 2, **members}


def of_item(kind: str, index: int, item: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item, **members}


STREAM: list[dict[str, Any]] = [
    {"type": "response.created", "response": SETTINGS, "trace": "t"},
    {"type": "response.in_progress", "response": {**SETTINGS, "moderation": {"ok": True}}, "trace": None},
    of_item("added", 0, sealed("first"), hint=1),
    of_item("done", 0, sealed("second")),
    of_item("added", 1, {**MESSAGE, "status": "in_progress", "content": []}),
    in_part("response.content_part.added", part={"type": "output_text", "text": "", "annotations": [], "rank": 1}),
    in_part("response.output_text.delta", delta="H", logprobs=[], obfuscation="xx"),
    in_part("response.output_text.delta", delta="i", logprobs=[], obfuscation="yyy"),
    in_part("response.output_text.delta", delta="", logprobs=[], kept=False),
    in_part("response.output_text.done", text="Hi", logprobs=[], seen=True),
    in_part("response.content_part.done", part=PART, rank=2),
    of_item("done", 1, MESSAGE),
    of_item("added", 2, {**CALL, "status": "in_progress", "arguments": ""}),
    in_call("response.function_call_arguments.delta", delta="{}", obfuscation="z", extra_member=[1]),
    in_call("response.function_call_arguments.done", arguments="{}"),
    of_item("done", 2, CALL),
    of_item("added", 3, SEARCH),
    {"type": "response.web_search_call.searching", "item_id": "ws_1", "output_index": 3},
    of_item("done", 3, SEARCH),
    of_item("added", 4, PROGRAM),
    of_item("done", 4, PROGRAM),
    {
        "type": "response.completed",
        "response": whole([sealed("third"), MESSAGE, CALL, SEARCH, PROGRAM]),
        "copilot_usage": {"total": 1},
    },
]
EMPTY_DELTA = 8  # the writer emits no empty delta


def relay(
    events: list[dict[str, Any]],
    request: Request = REQUEST,
    wire: ResponsesWire = ResponsesWire(),  # noqa: B008
    client_request: Request | None = None,
) -> list[dict[str, Any]]:
    """The events that a client gets for the events of a server."""
    initial = make_initial_response(client_request or request, id="resp_ours", created_at=1)
    to_hub = EventsToHub(request, initial, counting_stamps(), wire)
    policy, from_hub, grammar = Policy.for_request(request), EventsFromHub(request), Grammar(judges_foreign_items=False)
    data = b""
    for number, event in enumerate(events):
        for hub_event in to_hub.feed(frame_of({"sequence_number": number, **event})):
            assert [violation for violation in grammar.feed(hub_event) if violation.row != "STR-6"] == []
            for client_event in policy.feed(hub_event):
                data += from_hub.feed(client_event)
    decoder = sse.Decoder()
    return [json.loads(frame.data) for frame in decoder.feed(data)]


def expected(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    numbered = [{"sequence_number": number, **event} for number, event in enumerate(events)]
    return [
        {**event, "response": {**event["response"], "id": "resp_ours"}} if "response" in event else event
        for event in numbered
    ]


def test_stream_arrives_as_the_server_sent_it() -> None:
    sent = [event for index, event in enumerate(STREAM) if index != EMPTY_DELTA]
    assert relay(sent) == expected(sent)


def test_whole_answer_arrives_as_the_server_sent_it() -> None:
    body = whole([sealed("one"), MESSAGE, CALL, SEARCH, PROGRAM])
    response, losses = response_to_hub(
        json.dumps(body).encode(),
        REQUEST,
        make_initial_response(REQUEST, id="resp_ours", created_at=1),
        counting_stamps(),
    )
    assert list(losses) == []
    client_body, _ = response_from_hub(response, REQUEST)
    assert json.loads(client_body) == {**body, "id": "resp_ours"}
    # A stored response is decoded again.
    assert codec.encode(codec.decode_response(codec.encode(response))) == codec.encode(response)


def test_members_that_belong_to_the_gateway_stay() -> None:
    client_request = replace(REQUEST, model="alias", store=False, previous_response_id="resp_0", conversation="conv_1")
    (created,) = relay(STREAM[:1], client_request=client_request)
    own = {name: created["response"][name] for name in ("model", "store", "previous_response_id", "conversation")}
    assert own == {
        "model": "alias",
        "store": False,
        "previous_response_id": "resp_0",
        "conversation": {"id": "conv_1"},
    }


def test_settings_that_the_server_did_not_get_are_echoed_as_the_client_sent_them() -> None:
    """REQ-5: one was removed by a quirk, one is lacking in the API of the server."""
    client_request = replace(REQUEST, metadata={"a": "b"}, prompt_cache_key="mine")
    request = replace(client_request, metadata=msgspec.UNSET)
    (created,) = relay(STREAM[:1], request, ResponsesWire(lacks=["prompt_cache_key"]), client_request)
    assert (created["response"]["metadata"], created["response"]["prompt_cache_key"]) == ({"a": "b"}, "mine")


def test_tools_that_were_flattened_for_the_server_are_echoed_as_the_client_sent_them() -> None:
    request = replace(REQUEST, tools=[CustomTool(name="run"), FunctionToolParam(name="look")])
    wire = ResponsesWire(extension_tools="flatten")
    call = {**CALL, "name": "run", "arguments": '{"input":"ls"}'}
    created, _, added, *_ = relay([STREAM[0], of_item("added", 0, {**call, "arguments": ""})], request, wire)
    assert [tool["type"] for tool in created["response"]["tools"]] == ["custom", "function"]
    assert added["item"] == {
        "type": "custom_tool_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "run",
        "input": "",
        "status": "in_progress",
    }


def test_required_members_that_the_server_left_out_are_filled() -> None:
    """HTTP-2"""
    created, *_ = relay([{"type": "response.created", "response": {}}])
    assert created["response"] == json.loads(codec.encode(make_initial_response(REQUEST, id="resp_ours", created_at=1)))


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("temperature", "warm"),
        ("created_at", "now"),
        ("text", {"format": {"type": "hologram", "size": 3}}),
        ("output", {"not": "a list"}),
        ("tools", "none"),
        ("reasoning", "much"),
    ],
)
def test_member_of_a_wrong_type_is_replaced(member: str, value: Any) -> None:
    created, *_ = relay([{"type": "response.created", "response": {**SETTINGS, member: value}}])
    own = json.loads(codec.encode(make_initial_response(REQUEST, id="resp_ours", created_at=1)))
    assert created["response"][member] == own[member]


def test_incomplete_settings_keep_the_members_that_the_server_sent() -> None:
    format = {"type": "json_schema", "schema": {"type": "object"}, "rank": 1}
    created, *_ = relay([{"type": "response.created", "response": {**SETTINGS, "text": {"format": {"type": "text"}}}}])
    assert created["response"]["text"] == {"format": {"type": "text"}}
    request = replace(REQUEST, text=codec.decode_request(json.dumps({"text": {"format": format}}).encode()).text)
    created, *_ = relay(
        [{"type": "response.created", "response": {**SETTINGS, "text": {"format": format, "x": 1}}}], request
    )
    assert created["response"]["text"]["x"] == 1
    assert created["response"]["text"]["format"]["schema"] == {"type": "object"}


def test_details_of_an_incomplete_response_are_kept() -> None:
    response = {
        **whole([{**MESSAGE, "status": "incomplete"}]),
        "status": "incomplete",
        "completed_at": None,
        "incomplete_details": {"reason": "max_output_tokens", "limit": 5},
    }
    *_, end = relay([STREAM[0], {"type": "response.incomplete", "response": response}])
    assert end["response"] == {**response, "id": "resp_ours"}


def test_part_that_contradicts_the_streamed_text_keeps_the_streamed_text() -> None:
    """STR-6"""
    message = {**MESSAGE, "content": [{**PART, "text": "Ho"}, {**PART, "text": "more"}]}
    *_, done = relay(
        [*STREAM[:2], *STREAM[4:8], in_part("response.content_part.done", part=PART), of_item("done", 1, message)]
    )
    assert [part["text"] for part in done["item"]["content"]] == ["Hi", "more"]


def test_later_announcement_of_the_response_is_ignored() -> None:
    """STR-1"""
    created = {"type": "response.created", "response": SETTINGS}
    queued = {"type": "response.queued", "response": {**SETTINGS, "status": "queued"}}
    kinds = [event["type"] for event in relay([created, created, queued, created])]
    assert kinds == ["response.created", "response.in_progress"]
    kinds = [event["type"] for event in relay([queued, queued, created])]
    assert kinds == ["response.created", "response.queued", "response.in_progress"]
    in_progress = {"type": "response.in_progress", "response": {**SETTINGS, "status": "queued"}}
    assert [event["type"] for event in relay([in_progress])] == ["response.created", "response.queued"]


def test_required_members_of_settings_are_filled() -> None:
    """HTTP-2: with null, or with the value of the request."""
    schema = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}
    settings = {**SETTINGS, "text": {"format": schema}, "reasoning": {"effort": "low"}}
    created, *_ = relay([{"type": "response.created", "response": settings}])
    assert created["response"]["text"] == {"format": {**schema, "description": None, "strict": False}}
    assert created["response"]["reasoning"] == {"effort": "low", "summary": None}
    created, *_ = relay([{"type": "response.created", "response": {**SETTINGS, "text": {"verbosity": "low"}}}])
    assert created["response"]["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    created, *_ = relay([{"type": "response.created", "response": {**SETTINGS, "text": None, "reasoning": None}}])
    assert (created["response"]["text"], created["response"]["reasoning"]) == (None, None)


def test_log_probabilities_keep_unknown_members() -> None:
    alternative = {"token": "i", "logprob": -2.5, "bytes": [105], "rank": 2}
    logprobs = [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [alternative], "rank": 1}]
    part = {**PART, "logprobs": logprobs}
    message = {**MESSAGE, "content": [part]}
    asking = Request(model="m", input="hi", include=["message.output_text.logprobs"])
    sent = [
        {"type": "response.created", "response": SETTINGS},
        {"type": "response.in_progress", "response": SETTINGS},
        of_item("added", 0, {**message, "status": "in_progress", "content": []}),
        in_part("response.content_part.added", part={"type": "output_text", "text": "", "annotations": []}),
        in_part("response.output_text.delta", delta="Hi", logprobs=logprobs),
        in_part("response.output_text.done", text="Hi", logprobs=logprobs),
        in_part("response.content_part.done", part=part),
        of_item("done", 0, message),
        {"type": "response.completed", "response": whole([message])},
    ]
    sent = [event | {"output_index": 0} if "output_index" in event else event for event in sent]
    assert relay(sent, asking) == expected(sent)


@pytest.mark.parametrize("size", [10, codec.LARGE_SETTING])
def test_encoded_settings_of_a_large_request_stay_beside_those_of_the_server(size: int) -> None:
    """The server may send tools that the hub does not read."""
    tools: Any = msgspec.Raw(b'[{"type":"acme","x":"%b"}]' % (b"x" * size))
    initial = replace(make_initial_response(REQUEST, id="resp_ours", created_at=1), tools=tools)
    server = {**whole([]), "tools": [{"type": "function", "name": 7}], "metadata": {"a": "b"}}
    response, _ = response_to_hub(json.dumps(server).encode(), REQUEST, initial, counting_stamps())
    assert response.tools is tools
    assert response.metadata == {"a": "b"}
