"""The history that a request references or continues is limited by `max_body_mib`, over HTTP and WebSocket, on both
stores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from tests.api.stateful import Lab, error_in, lab, message, text_of
from tests.store import postgres_server

from antiphon import testing
from antiphon.config import Config
from antiphon.testing import turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
LIMIT = 1024 * 1024
LARGE = "x" * 300_000  # three of them fit


def small(config: Config) -> Config:
    return replace(config, server=replace(config.server, max_body_mib=1))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with lab(postgres_server.fresh_url() if request.param == "postgres" else None, config=small) as running:
        yield running


@pytest.fixture
def here(shared: Lab) -> Iterator[Lab]:
    shared.begin()
    yield shared
    assert shared.chat.refusals == []


def is_too_long(error: dict[str, Any], param: str) -> None:
    assert (error["status"], error["type"], error["code"], error["param"]) == (
        400,
        "invalid_request",
        "context_length_exceeded",
        param,
    )
    assert f"expected at most {LIMIT} (max_body_mib)" in error["message"]


def reference(id: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": id}


def test_references_over_the_limit_are_refused_at_the_first_that_does_not_fit(here: Lab) -> None:
    here.told([message("user", LARGE, id="msg_large")])
    asked = len(here.chat.received)
    references = [reference("msg_large")] * 1000
    is_too_long(here.refused(references), "input[3].id")
    answer = here.call("POST", "/v1/responses/compact", json={"model": "mock-1", "input": references})
    is_too_long(error_in(answer), "input[3].id")
    answer = here.call("POST", "/v1/responses/input_tokens", json={"model": "mock-1", "input": references})
    is_too_long(error_in(answer), "input[3].id")
    answer = here.call("POST", "/v1/conversations", json={"items": references[:20]})
    is_too_long(error_in(answer), "items[3].id")
    assert len(here.chat.received) == asked
    here.told([*references, message("user", "Go.")], truncation="auto")
    assert [len(words) for _, words in here.messages] == [300_000] * 3 + [3]


def test_chain_over_the_limit_is_refused_or_truncated(here: Lab) -> None:
    previous: dict[str, Any] = {}
    for number in range(4):
        previous = {"previous_response_id": here.told(f"{number}{LARGE}", **previous)["id"]}
        if number == 2:
            here.told("Go on.", **previous)
    is_too_long(here.refused("Go on.", **previous), "previous_response_id")
    answer = here.ask("Go on.", truncation="auto", **previous)
    assert answer.status_code == 200
    assert [words[0] for role, words in here.messages if role == "user"] == ["1", "2", "3", "G"]
    assert answer.headers["antiphon-losses"] == "1; previous_response_id"


def test_conversation_over_the_limit_is_refused_or_truncated(here: Lab) -> None:
    id = here.call("POST", "/v1/conversations", json={}).json()["id"]
    for number in range(4):
        here.told(f"{number}{LARGE}", conversation=id)
    is_too_long(here.refused("Go on.", conversation=id), "conversation")
    here.told("Go on.", conversation=id, truncation="auto")
    assert [words[0] for role, words in here.messages if role == "user"] == ["1", "2", "3", "G"]


def test_unstored_websocket_chain_over_the_limit_is_refused_or_truncated(here: Lab) -> None:
    """WS-5, WS-7: after a refusal it is evicted; truncated to its newest items, it can be continued repeatedly."""
    with here.socket() as talk:
        for settings in ({"truncation": "auto"}, {}):
            previous: dict[str, Any] = {}
            for number in range(4):
                response = talk.told(f"{number}{LARGE}", store=False, **previous, **settings)
                previous = {"previous_response_id": response["id"]}
            if settings:
                assert text_of(talk.told("Go on.", store=False, **previous, **settings)) == "Hello."
                assert [words[0] for role, words in here.messages if role == "user"] == ["1", "2", "3", "G"]
            else:
                is_too_long(talk.refused("Go on.", store=False, **previous), "previous_response_id")
                assert talk.refused("Go on.", store=False, **previous)["code"] == "previous_response_not_found"
        talk.settle()


def prompt_of(item: dict[str, Any]) -> dict[str, Any]:
    """A message or an item without the bookkeeping of the Responses API, which is no part of the prompt: a stored item
    has an id, and its type is written out."""
    is_message = item.get("type") == "message"
    return {name: value for name, value in item.items() if name != "id" and not (is_message and name == "type")}


@pytest.mark.parametrize("model", ["mock-1", "other-1"])
def test_chain_sends_the_earlier_conversation_unchanged(here: Lab, model: str) -> None:
    """E-4, the prefix law of `dialects/test_prefix_law` for a client that sends only what is new."""
    server, name = (here.chat, "messages") if model == "mock-1" else (here.other, "input")
    calls = testing.interleaved(testing.tool_call("c1", "f", '{"a": 1}'), testing.tool_call("c2", "f", "{}"))
    here.says += [
        turn(testing.reasoning("Hm."), testing.text("Let me see."), calls),
        turn(testing.text("Both.")),
        turn(testing.text("Yes.")),
    ]
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    outputs = [{"type": "function_call_output", "call_id": id, "output": f"of {id}"} for id in ("c1", "c2")]
    settings: dict[str, Any] = {"model": model, "tools": [{"type": "function", "name": "f"}], "instructions": "rules"}
    question = [{"role": "user", "content": [{"type": "input_text", "text": "Look."}, image]}]
    start = len(server.received)
    previous: dict[str, Any] = {}
    for input in (question, outputs, "And?", "Really?"):
        previous = {"previous_response_id": here.told(input, **settings, **previous)["id"]}
    bodies = [received.json for received in server.received[start:]]
    assert len(bodies) == 4
    for earlier, later in pairwise(bodies):
        assert (earlier["tools"], earlier.get("instructions")) == (later["tools"], later.get("instructions"))
        assert [prompt_of(item) for item in later[name][: len(earlier[name])]] == [
            prompt_of(item) for item in earlier[name]
        ]
