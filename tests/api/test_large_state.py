"""Large conversations, stored responses and token counts of editors: decoded and rendered in another process, with the same
results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from tests.api.stateful import Lab, events_in, lab, message, text_of

from antiphon import testing
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.testing import turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

LARGE = "x" * (LARGE_INPUT + 1)
#: Functions that decode or render items. None may be called in the gateway's process for large ones.
WORK = {
    "make_entries",
    "render_item",
    "render_page",
    "response_from_record",
    "replay_response",
    "_render_input_page",
    "_decode_single_text",
    "_estimate_tokens",
    "_read_count",
}


@contextmanager
def recorded_work() -> Iterator[list[str]]:
    """The names of the functions in `WORK` that threads call which are started inside the block."""
    calls: list[str] = []

    def record(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name in WORK:
            calls.append(frame.f_code.co_name)

    threading.setprofile(record)
    try:
        yield calls
    finally:
        threading.setprofile(None)


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Lab, list[str]]]:
    with recorded_work() as calls, lab() as running:
        yield running, calls


def make_conversation(place: Lab, text: str) -> str:
    answer = place.call("POST", "/v1/conversations", json={"items": [message("user", text)]})
    assert answer.status_code == 200, answer.text[:500]
    id: str = answer.json()["id"]
    return id


def create(place: Lab, text: str) -> str:
    page = place.call("GET", f"/v1/conversations/{make_conversation(place, text)}/items").json()
    found: str = page["data"][0]["content"][0]["text"]
    return found


def refer(place: Lab, text: str) -> str:
    """A small body that refers to a large item."""
    place.says.append(turn(testing.text(text), testing.usage(5, 2)))
    stored = place.call("POST", "/v1/responses", json={"model": "mock-1", "input": "Hi"}).json()
    reference = {"type": "item_reference", "id": stored["output"][0]["id"]}
    id = place.call("POST", "/v1/conversations", json={"items": [reference]}).json()["id"]
    page = place.call("GET", f"/v1/conversations/{id}/items").json()
    found: str = page["data"][0]["content"][0]["text"]
    return found


def retrieve(place: Lab, text: str) -> str:
    place.says.append(turn(testing.text(text), testing.usage(5, 2)))
    stored = place.call("POST", "/v1/responses", json={"model": "mock-1", "input": "Hi"}).json()
    response = place.call("GET", f"/v1/responses/{stored['id']}").json()
    streamed = events_in(place.call("GET", f"/v1/responses/{stored['id']}?stream=true"))
    assert streamed[-1]["response"] == response
    return text_of(response)


def cancel(place: Lab, text: str) -> str:
    """Of a background response that repeats large instructions."""
    body = {"model": "mock-1", "input": "Hi", "instructions": text, "background": True}
    id = place.call("POST", "/v1/responses", json=body).json()["id"]
    response = place.call("POST", f"/v1/responses/{id}/cancel").json()
    assert response["status"] in ("cancelled", "completed")
    instructions: str = response["instructions"]
    return instructions


def list_input(place: Lab, text: str) -> str:
    stored = place.call("POST", "/v1/responses", json={"model": "mock-1", "input": text}).json()
    page = place.call("GET", f"/v1/responses/{stored['id']}/input_items").json()
    found: str = page["data"][0]["content"][0]["text"]
    return found


def editor_message(text: str) -> dict[str, Any]:
    return {"role": 1, "content": [text]}


def count(place: Lab, body: dict[str, Any]) -> int:
    answer = place.call("POST", "/v1/vscode/count_tokens", json={"model": "mock-1", **body})
    assert answer.headers.get("antiphon-estimated") == "true", answer.text[:500]
    tokens: int = answer.json()["count"]
    return tokens


@pytest.mark.parametrize("use", [create, refer, retrieve, cancel, list_input])
def test_large_items_are_decoded_and_rendered_in_another_process(
    place: tuple[Lab, list[str]], use: Callable[[Lab, str], str]
) -> None:
    here, calls = place
    here.begin()
    calls.clear()
    assert use(here, LARGE) == LARGE
    assert calls == []
    assert use(here, "small") == "small"
    assert calls  # the recorder works


def test_large_items_are_added_in_another_process(place: tuple[Lab, list[str]]) -> None:
    here, calls = place
    id = make_conversation(here, "Hi")
    calls.clear()
    body = {"items": [message("user", LARGE)]}
    page = here.call("POST", f"/v1/conversations/{id}/items", json=body).json()
    item = here.call("GET", f"/v1/conversations/{id}/items/{page['data'][0]['id']}").json()
    assert item == page["data"][0]
    assert item["content"][0]["text"] == LARGE
    assert calls == []


@pytest.mark.parametrize("body", [{"metadata": LARGE}, {"metadata": {"x": LARGE}}, {"items": [LARGE]}])
def test_large_body_of_a_conversation_that_is_refused_is_refused_in_another_process(
    place: tuple[Lab, list[str]], body: dict[str, Any]
) -> None:
    here, calls = place
    id = make_conversation(here, "Hi")
    calls.clear()
    for path in ("/v1/conversations", f"/v1/conversations/{id}", f"/v1/conversations/{id}/items"):
        assert here.call("POST", path, json=body).status_code == 400
    assert calls == []


@pytest.mark.parametrize(
    "body_with",
    [
        lambda text: {"text": text},
        lambda text: {"text": editor_message(text)},
        lambda text: {"messages": [editor_message(text)]},
    ],
    ids=["text", "message", "conversation"],
)
def test_large_body_of_an_editor_is_counted_in_another_process(
    place: tuple[Lab, list[str]], body_with: Callable[[str], dict[str, Any]]
) -> None:
    here, calls = place
    calls.clear()
    assert count(here, body_with(LARGE)) > LARGE_INPUT // 10
    assert calls == []
    assert count(here, body_with("small")) < 20
    assert "_decode_single_text" in calls
    assert calls[-1] == ("_estimate_tokens" if "text" in body_with("") else "_read_count")
