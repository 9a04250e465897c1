"""Compaction and truncation on the wire: the endpoint, the trigger, the threshold, over HTTP and WebSocket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec.structs import replace
from tests.api.stateful import ALICE, BOB, HELLO, Lab, error_in, events_in, lab, lab_on, message, output, text_of
from tests.generate.schema import published
from tests.running import until
from tests.store import postgres_server

from antiphon import testing
from antiphon.config import CompactionConfig, Config
from antiphon.gateway import compaction
from antiphon.testing import Reply, turn

pytestmark = pytest.mark.io
KEY = {"COMPACTION_KEY": "ab" * 32}
TRIGGER = {"type": "compaction_trigger"}
NOTES = "The launch is on Tuesday; the code word is slate."
SUMMARY: Reply = turn(testing.text("The launch is on Tuesday; ", "the code word is slate."), testing.usage(120, 30))
CONVERSATION = [
    message("developer", "Be brief."),
    message("user", "We launch on Tuesday. The code word is slate."),
    message("assistant", "Understood."),
    message("user", "Compress this."),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[Lab]:
    with lab_on("sqlite") as running:
        yield running


@pytest.fixture
def place(shared: Lab) -> Lab:
    shared.begin()
    return shared


def keyed(config: Config) -> Config:
    return replace(config, compaction=CompactionConfig(keys_env=["COMPACTION_KEY"]))


def compacted(place: Lab, input: Any = CONVERSATION, **fields: Any) -> dict[str, Any]:
    place.says.append(SUMMARY)
    answer = place.call("POST", "/v1/responses/compact", json={"model": "mock-1", "input": input, **fields})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-request-id"]
    response: dict[str, Any] = answer.json()
    return response


def refused(place: Lab, body: dict[str, Any], key: str = ALICE) -> dict[str, Any]:
    return error_in(place.call("POST", "/v1/responses/compact", json=body, key=key))


def long_talk(*, words: int = 900) -> list[dict[str, Any]]:
    return [message("user", "alpha " * words), message("assistant", "beta " * words), message("user", "And now?")]


def managed(threshold: int) -> dict[str, Any]:
    return {"context_management": [{"type": "compaction", "compact_threshold": threshold}]}


# The endpoint


def test_compact_returns_the_user_messages_and_a_compaction_item_with_usage(place: Lab) -> None:
    """CMP-1: `response.compaction` whose output ends in a compaction item, with usage."""
    response = compacted(place, prompt_cache_key="k")
    schema = {"$ref": "#/components/schemas/CompactResource", "components": {"schemas": published()}}
    assert [error.message for error in Draft202012Validator(schema).iter_errors(response)] == []
    assert response["object"] == "response.compaction"
    *messages, item = response["output"]
    assert item["type"] == "compaction"
    assert [(message["type"], message["role"], message["status"]) for message in messages] == [
        ("message", "user", "completed"),
        ("message", "user", "completed"),
    ]
    assert [message["content"] for message in messages] == [
        [{"type": "input_text", "text": "We launch on Tuesday. The code word is slate."}],
        [{"type": "input_text", "text": "Compress this."}],
    ]
    assert len({item["id"] for item in response["output"]}) == 3
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (120, 30)
    assert NOTES not in str(response)
    line = place.gateway.requests(1)[-1]
    assert (line["path"], line["model"], line["upstream"], line["input_tokens"]) == (
        "/v1/responses/compact",
        "mock-1",
        "chat",
        120,
    )
    assert NOTES not in place.gateway.written


@pytest.mark.parametrize("model", ["mock-1", "other-1"])
def test_compaction_is_sent_as_summary_to_any_model(place: Lab, model: str) -> None:
    """CMP-3: also on another upstream of another dialect than the one that wrote the summary."""
    base = compacted(place)["output"]
    assert text_of(place.told([*base, message("user", "When?")], model=model)) == "Hello."
    if model == "mock-1":
        roles, words = zip(*place.messages, strict=True)
        assert roles == ("system", "user", "user", "user", "user")
    else:
        words = tuple(item["content"] for item in place.items)
        assert [item["role"] for item in place.items] == ["developer", "user", "user", "user", "user"]
    assert words[0] == "Be brief."
    assert NOTES in words[1]
    assert words[2:] == ("We launch on Tuesday. The code word is slate.", "Compress this.", "When?")
    sent = place.chat.received[-1].body + b"".join(received.body for received in place.other.received)
    assert b"antiphon1." not in sent


PIXEL = "data:image/png;base64,iVBORw0KGgo="
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "The first question."},
    {"role": "assistant", "content": "The first answer."},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "A picture."}, {"type": "input_image", "image_url": PIXEL}],
    },
    {"role": "assistant", "content": "A pixel."},
    {"role": "user", "content": [{"type": "input_text", "text": "One."}, {"type": "input_text", "text": "Two."}]},
]
TEXTS = ("The first question.", "A picture.", "One.", "Two.", "Which?")


@pytest.mark.parametrize("model", ["mock-1", "other-1"])
@pytest.mark.parametrize("way", ["whole output", "item alone", "whole history", "chain", "twice"])
def test_model_sees_each_message_once_after_a_compaction(place: Lab, model: str, way: str) -> None:
    """CMP-1, CMP-3: counted in the body that the server gets, however the client continues."""
    output = compacted(place, TALK)["output"]
    question = message("user", "Which?")
    match way:
        case "whole output":
            place.told([*output, question], model=model)
        case "item alone":
            place.told([output[-1], question], model=model)
        case "whole history":
            place.told([*TALK, *output, question], model=model)
        case "chain":
            first = place.told(output, model=model)
            place.told([question], previous_response_id=first["id"], model=model)
        case _:
            place.told([*compacted(place, [*output, question])["output"]], model=model)
    body = (place.chat if model == "mock-1" else place.other).received[-1].body.decode()
    assert [body.count(text) for text in TEXTS] == [1] * len(TEXTS)
    assert body.count(PIXEL) == 1
    assert body.count(NOTES) == 1


def test_media_that_are_too_large_leave_each_message_once(place: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """CMP-1: the returned message has a note in place of the image, and covers both forms."""
    monkeypatch.setattr(compaction, "MAX_VERBATIM_BYTES", 10)
    output = compacted(place, TALK)["output"]
    assert PIXEL not in str(output)
    for history in (output, [*TALK, *output]):
        place.told([*history, message("user", "Which?")])
        body = place.chat.received[-1].body.decode()
        assert [body.count(text) for text in TEXTS] == [1] * len(TEXTS)


def test_compaction_starts_a_new_chain_on_a_websocket(place: Lab) -> None:
    """WS-11."""
    base = compacted(place)["output"]
    with place.socket() as talk:
        first = talk.told([*base, message("user", "When?")], store=False)
        assert first["previous_response_id"] is None
        assert NOTES in place.messages[1][1]
        talk.told("And where?", previous_response_id=first["id"], store=False)
        assert NOTES in place.messages[1][1]
        assert [words for _, words in place.messages][-3:] == ["When?", "Hello.", "And where?"]


def test_compact_accepts_a_stored_chain_and_its_output_can_be_continued(place: Lab) -> None:
    """CMP-1: `previous_response_id`. The part of the chain before the compaction is sent only once."""
    first = place.told("The code word is slate.")
    response = compacted(place, None, previous_response_id=first["id"])
    assert "[user]\nThe code word is slate.\n\n[assistant]\nHello." in place.messages[1][1]
    second = place.told([*response["output"], message("user", "Go on.")])
    third = place.told("And on.", previous_response_id=second["id"])
    assert [words for _, words in place.messages][1:] == [
        "The code word is slate.",
        "Hello.",
        "Go on.",
        "Hello.",
        "And on.",
    ]
    assert third["previous_response_id"] == second["id"]


def test_compact_accepts_an_earlier_compaction(place: Lab) -> None:
    base = compacted(place)["output"]
    again = compacted(place, [*base, message("assistant", "Aye."), message("user", "Once more.")])["output"]
    asked = place.messages[1][1]
    assert "[summary of the earlier conversation]" in asked
    assert NOTES in asked
    place.told([*base, message("assistant", "Aye."), message("user", "Once more."), *again, message("user", "When?")])
    assert [words for _, words in place.messages][2:] == [
        "We launch on Tuesday. The code word is slate.",
        "Compress this.",
        "Once more.",
        "When?",
    ]


def test_compact_preserves_open_tool_calls(place: Lab) -> None:
    """CMP-3: open tool calls are preserved, and an output finds its call behind the seal."""
    call = {"type": "function_call", "call_id": "call_7", "name": "f", "arguments": "{}"}
    base = compacted(place, [message("user", "Look."), call])["output"]
    assert text_of(place.told([*base, output("call_7", "42")])) == "Hello."
    sent = place.chat.received[-1].json["messages"]
    assert [entry["role"] for entry in sent] == ["user", "user", "assistant", "tool"]
    assert sent[2]["tool_calls"][0]["id"] == sent[3]["tool_call_id"] == "call_7"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"input": "Hi"}, "missing_field", "model"),
        ({"model": "mock-1"}, "missing_field", "input"),
        ({"model": "mock-1", "input": []}, "missing_field", "input"),
        ({"model": "nobody", "input": "Hi"}, "model_not_found", "model"),
        ({"model": "mock-1", "input": 7}, "invalid_value", "input"),
        ({"model": "mock-1", "previous_response_id": "resp_1"}, "previous_response_not_found", "previous_response_id"),
    ],
)
def test_compact_refuses_invalid_bodies_without_an_upstream_call(
    place: Lab, body: dict[str, Any], code: str, param: str
) -> None:
    """CMP-1: `model` is required."""
    error = refused(place, body)
    assert (error["code"], error["param"]) == (code, param)
    assert place.chat.received == []


def test_compact_refuses_too_many_items() -> None:
    """They are those of the request; stored history does not count."""
    with lab(config=lambda config: replace(config, server=replace(config.server, max_input_items=2))) as place:
        items = [message("user", text) for text in "abc"]
        error = refused(place, {"model": "mock-1", "input": items})
        assert (error["code"], error["param"]) == ("invalid_value", "input")
        assert place.chat.received == []
        stored = place.call("POST", "/v1/responses", json={"model": "mock-1", "input": items[:2]}).json()
        continued = {"model": "mock-1", "previous_response_id": stored["id"], "input": items[2:]}
        assert place.call("POST", "/v1/responses/compact", json=continued).status_code == 200


def test_compact_reports_upstream_errors(place: Lab) -> None:
    """CMP-1."""
    assert refused(place, {"model": "away-1", "input": "Hi"})["code"] == "upstream_unavailable"
    place.says.append(testing.error(429, "slow down"))
    assert refused(place, {"model": "mock-1", "input": "Hi"})["status"] == 429


def test_compact_treats_the_chain_of_another_owner_as_unknown(place: Lab) -> None:
    first = place.told("A secret.")
    error = refused(place, {"model": "mock-1", "previous_response_id": first["id"]}, key=BOB)
    assert error["code"] == "previous_response_not_found"


# Compactions that cannot be opened


def bad_items(place: Lab) -> dict[str, tuple[dict[str, Any], str]]:
    """Bad items, each with the key of its sender."""
    *_, good = compacted(place)["output"]
    sealed = good["encrypted_content"]
    middle = len(sealed) // 2
    changed = sealed[:middle] + ("A" if sealed[middle] != "A" else "B") + sealed[middle + 1 :]
    return {
        "damaged": ({**good, "encrypted_content": changed}, ALICE),
        "cut": ({**good, "encrypted_content": sealed[:-20]}, ALICE),
        "foreign": ({**good, "encrypted_content": "gAAAAABpM0Yj"}, ALICE),
        "forged": ({**good, "encrypted_content": "antiphon1.AAAA"}, ALICE),
        "somebody else's": (good, BOB),
    }


def test_unreadable_compaction_is_refused_on_every_endpoint(place: Lab) -> None:
    """CMP-2: `invalid_compaction`, with the path of the item."""
    for name, (item, key) in bad_items(place).items():
        place.chat.received.clear()
        input = [message("user", "Hi"), item]
        bodies = [{"model": "mock-1", "input": input}, {"model": "mock-1", "input": input, "stream": True}]
        errors = [error_in(place.call("POST", "/v1/responses", json=body, key=key)) for body in bodies]
        errors.append(refused(place, {"model": "mock-1", "input": input}, key=key))
        with place.socket(key=key) as talk:
            errors.append(talk.refused(input))
            talk.settle()
        for error in errors:
            assert (error["status"], error["code"]) == (400, "invalid_compaction"), name
            assert error["param"] == "input[1].encrypted_content"
        assert len(place.chat.received) == 1  # the request that shows that the socket still works


def test_foreign_compaction_is_passed_through_to_a_responses_server(place: Lab) -> None:
    foreign = {"type": "compaction", "encrypted_content": "gAAAAABpM0Yj"}
    place.told([foreign, message("user", "Hi")], model="other-1")
    assert place.items[0] == foreign
    (item, _) = bad_items(place)["damaged"]
    assert (
        place.refused([item], model="other-1")["code"] == "invalid_compaction"
    )  # a sealed item of ours, or an imitation of one


# The trigger


def test_trigger_yields_one_compaction_on_every_transport(place: Lab) -> None:
    """CMP-1."""
    place.says += [SUMMARY, SUMMARY, SUMMARY]
    input = [*CONVERSATION, TRIGGER]
    whole = place.told(input)
    events = events_in(place.ask(input, stream=True))
    with place.socket() as talk:
        on_socket = talk.ask(input, store=False)
    kinds = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["type"] for event in events] == [event["type"] for event in on_socket] == kinds
    for response in (whole, events[-1]["response"], on_socket[-1]["response"]):
        assert [item["type"] for item in response["output"]] == ["compaction"]
        assert response["usage"]["total_tokens"] == 150
    assert events[3]["item"] == events[-1]["response"]["output"][0]


def test_trigger_response_is_stored_and_can_be_continued(place: Lab) -> None:
    """CMP-3: in a chain, and as the input of a client that sends the user's messages again."""
    place.says.append(SUMMARY)
    made = place.told([*CONVERSATION, TRIGGER])
    assert place.kept(made["id"])["output"] == made["output"]
    place.told("When?", previous_response_id=made["id"])
    chained = place.messages
    retained = [entry for entry in CONVERSATION if entry["role"] == "user"]
    place.told([*retained, message("developer", "New rules."), *made["output"], message("user", "When?")])
    assert [words for _, words in place.messages if words != "New rules."] == [words for _, words in chained]
    assert chained[0] == ("system", "Be brief.")
    assert NOTES in chained[1][1]
    assert [words for _, words in chained[2:]] == [
        "We launch on Tuesday. The code word is slate.",
        "Compress this.",
        "When?",
    ]


def test_trigger_compacts_the_unstored_chain_of_a_websocket(place: Lab) -> None:
    """WS-5, CMP-3."""
    with place.socket() as talk:
        first = talk.told("The code word is slate.", store=False)
        place.says.append(SUMMARY)
        made = talk.told([TRIGGER], previous_response_id=first["id"], store=False)
        talk.told("When?", previous_response_id=made["id"], store=False)
        assert NOTES in place.messages[0][1]
        assert [words for _, words in place.messages][1:] == ["The code word is slate.", "Hello.", "When?"]


def test_trigger_before_the_last_item_is_refused(place: Lab) -> None:
    error = place.refused([TRIGGER, message("user", "Hi")])
    assert (error["code"], error["param"]) == ("invalid_value", "input[0]")
    assert place.refused([TRIGGER])["code"] == "missing_field"


def test_summary_failure_after_stream_start_is_an_error_event() -> None:
    """STR-8."""
    with lab(first_byte_timeout=0.01) as place:
        place.says.append(turn(testing.text("Not"), testing.pause(0.3), testing.end("fin")))
        events = events_in(place.ask([*CONVERSATION, TRIGGER], stream=True))
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]


# The threshold


def test_threshold_compacts_the_history_before_the_turn(place: Lab) -> None:
    """CMP-3: the compaction is the first item of the output."""
    place.says += [SUMMARY, HELLO, SUMMARY, HELLO]
    whole = place.told(long_talk(), **managed(1000))
    events = events_in(place.ask(long_talk(), stream=True, **managed(1000)))
    for response in (whole, events[-1]["response"]):
        assert [item["type"] for item in response["output"]] == ["compaction", "message"]
        assert text_of(response) == "Hello."
        assert response["usage"]["total_tokens"] == 157
    assert [event["output_index"] for event in events if "output_index" in event] == [0, 0, *[1] * 7]
    assert [words for _, words in place.messages][1:] == ["And now?"]
    assert NOTES in place.messages[0][1]


def test_threshold_does_not_compact_a_compacted_chain_again(place: Lab) -> None:
    place.says.append(SUMMARY)
    first = place.told(long_talk(), **managed(1000))
    asked = len(place.chat.received)
    second = place.told("And then?", previous_response_id=first["id"], **managed(1000))
    assert len(place.chat.received) == asked + 1
    assert [item["type"] for item in second["output"]] == ["message"]
    assert [words for _, words in place.messages][1:] == ["And now?", "Hello.", "And then?"]
    place.told([*long_talk(), *first["output"], message("user", "And then?")], **managed(1000))
    assert [words for _, words in place.messages][1:] == [
        "And now?",
        "Hello.",
        "And then?",
    ]  # a client that sends the whole history gets the same


def test_threshold_not_reached_changes_nothing_and_is_not_forwarded(place: Lab) -> None:
    for model in ("mock-1", "other-1"):
        response = place.told(long_talk(), model=model, **managed(100_000))
        assert [item["type"] for item in response["output"]] == ["message"]
    assert b"context_management" not in place.chat.received[-1].body + place.other.received[-1].body
    assert place.refused("Hi", context_management=[{"type": "forget"}])["param"] == "context_management[0].type"


# Truncation


def with_context(size: int) -> Any:
    def change(config: Config) -> Config:
        return replace(config, upstreams=[replace(upstream, context=size) for upstream in config.upstreams])

    return change


def test_truncation_auto_drops_the_oldest_items_and_reports_the_loss() -> None:
    """REQ-2."""
    with lab(config=with_context(1500)) as place:
        input = [message("system", "Rules."), *long_talk(), message("assistant", "Well."), message("user", "So?")]
        answer = place.ask(input, truncation="auto")
        assert answer.headers["antiphon-losses"] == "1; input[1]"
        assert answer.json()["truncation"] == "auto"
        assert [words for _, words in place.messages] == ["Rules.", input[2]["content"], "And now?", "Well.", "So?"]
        listed = place.get(f"{answer.json()['id']}/input_items?limit=100").json()["data"]
        assert len(listed) == len(input)
        whole = place.ask(input)
        assert "antiphon-losses" not in whole.headers
        assert len(place.messages) == len(input)  # `disabled`, the default, never drops anything


@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow_is_an_error_unless_truncation_can_drop_more(place: Lab, stream: bool) -> None:
    """REQ-2: with `auto` the upstream is called once more, before the client receives anything."""
    overflow = testing.error(400, "maximum context length is 10 tokens", code="context_length_exceeded")
    place.says += [overflow, overflow, HELLO]
    error = place.refused(long_talk(), stream=stream)
    assert (error["status"], error["code"]) == (400, "context_length_exceeded")
    answer = place.ask(long_talk(), stream=stream, truncation="auto")
    assert answer.status_code == 200
    assert answer.headers["antiphon-losses"] == "1; input[0]"
    assert len(place.messages) < 3
    place.says += [overflow, overflow]
    assert place.refused(long_talk(), stream=stream, truncation="auto")["code"] == "context_length_exceeded"


# Keys, replicas, restarts


def test_replicas_with_the_same_keys_open_each_others_compactions() -> None:
    """CMP-2: on PostgreSQL, whose gateways read their key from the configuration."""
    url = postgres_server.fresh_url()
    with lab(url, config=keyed, environ=KEY) as one, lab(url, config=keyed, environ=KEY) as other:
        base = compacted(one)["output"]
        other.told([*base, message("user", "When?")])
        assert NOTES in other.messages[1][1]
        one.says.append(SUMMARY)
        made = one.told([*CONVERSATION, TRIGGER])
        other.told("When?", previous_response_id=made["id"])
        assert NOTES in other.messages[1][1]
    with lab(url, config=keyed, environ={"COMPACTION_KEY": "cd" * 32}) as third:
        assert third.refused([*base, message("user", "When?")])["code"] == "invalid_compaction"
        assert third.refused("When?", previous_response_id=made["id"])["param"] == "previous_response_id"


def test_compact_on_postgresql_without_a_key_is_refused() -> None:
    with lab(postgres_server.fresh_url()) as place:
        error = refused(place, {"model": "mock-1", "input": "Hi"})
        assert error["code"] == "unsupported_parameter"
        assert "keys_env" in error["message"]
        assert place.refused([message("user", "Hi"), TRIGGER])["code"] == "unsupported_parameter"
        assert text_of(place.told("Hi")) == "Hello."
        assert len(place.chat.received) == 1


@pytest.mark.parametrize(
    ("path", "more"), [("/v1/responses/compact", {}), ("/v1/responses", {"stream": True}), ("/v1/responses", {})]
)
def test_client_disconnect_cancels_the_summary_call(path: str, more: dict[str, Any]) -> None:
    """Client: disconnects before the first byte; the upstream call is cancelled."""
    with lab(keys=False) as place:
        place.says.append(turn(testing.text("Not"), testing.end("hang")))
        body = msgspec.json.encode({"model": "mock-1", "input": [*CONVERSATION, TRIGGER], **more})
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        with place.gateway.connect() as client:
            client.sendall(head.encode() + body)
            until(lambda: any(b"transcript" in each.body for each in place.chat.received))
        (line,) = place.gateway.requests(1)
        assert line["client_left"]
        place.chat.wait_disconnected()
