"""The tenant matrix: bob with alice's ids, in every operation, on HTTP and on WebSocket. Each answer is the same as for
an unknown id: no byte reveals that the resource exists (PREV-3; docs/errors.md, "Security")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from tests.api.stateful import ALICE, BOB, TOOLS, Lab, lab_on, message, output

from antiphon import testing
from antiphon.testing import turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


class Hers(dict[str, str]):
    """Ids by the kind of resource."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def here(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with lab_on(request.param) as running:
        yield running


@pytest.fixture(scope="module")
def hers(here: Lab) -> Hers:
    """Alice's resources: a chain of two, with a call, and an item with an id of her choice."""
    here.says.append(turn(testing.text("A secret."), testing.tool_call("call_of_alice", "f", '{"secret":1}')))
    first = here.told([message("user", "Alice's secret.", id="msg_of_alice")], tools=TOOLS)
    second = here.told([output("call_of_alice")], previous_response_id=first["id"], tools=TOOLS)
    return Hers(
        response=first["id"],
        latest=second["id"],
        sent="msg_of_alice",
        answered=first["output"][0]["id"],
        call_item=first["output"][1]["id"],
        call="call_of_alice",
    )


def never(id: str) -> str:
    """An unknown id, as long as this one."""
    prefix = id[: id.index("_") + 1]
    return prefix + "0" * (len(id) - len(prefix))


Ask = Callable[[Lab, str], Any]


def fetched(tail: str = "") -> Ask:
    return lambda here, id: plain(here.get(id + tail, key=BOB))


def deleted(here: Lab, id: str) -> Any:
    return plain(here.delete(id, key=BOB))


def over_http(of: Callable[[str], dict[str, Any]], **settings: Any) -> Ask:
    return lambda here, id: plain(here.ask(key=BOB, **{"input": "Go on.", "tools": TOOLS, **of(id), **settings}))


def over_websocket(of: Callable[[str], dict[str, Any]], **settings: Any) -> Ask:
    def ask(here: Lab, id: str) -> Any:
        with here.socket(key=BOB) as talk:
            [event] = talk.ask(**{"input": "Go on.", "tools": TOOLS, **of(id), **settings})
            talk.settle()
            return event

    return ask


def plain(answer: httpx2.Response) -> Any:
    """Every part of an answer that could reveal something."""
    headers = sorted((name, value) for name, value in answer.headers.items() if name != "x-request-id")
    return answer.status_code, headers, answer.text


def previous(id: str) -> dict[str, Any]:
    return {"previous_response_id": id}


def reference(id: str) -> dict[str, Any]:
    return {"input": [message("user", "Hi"), {"type": "item_reference", "id": id}]}


def lone(id: str) -> dict[str, Any]:
    return {"input": [message("user", "Hi"), output(id)]}


def lone_custom(id: str) -> dict[str, Any]:
    return {"input": [{"type": "custom_tool_call_output", "call_id": id, "output": "x"}]}


OF_RESPONSES: dict[str, Ask] = {
    "get": fetched(),
    "get with include": fetched("?include=reasoning.encrypted_content"),
    "stream": fetched("?stream=true"),
    "stream from the middle": fetched("?stream=true&starting_after=3"),
    "input items": fetched("/input_items"),
    "input items after hers": fetched("/input_items?after=msg_of_alice&order=asc"),
    "delete": deleted,
    "continue": over_http(previous),
    "continue, streamed": over_http(previous, stream=True),
    "continue, unstored": over_http(previous, store=False),
    "continue with her output": over_http(previous, input=[output("call_of_alice")]),
    "continue with her item": over_http(previous, input=[{"type": "item_reference", "id": "msg_of_alice"}]),
    "continue, WebSocket": over_websocket(previous),
    "continue, WebSocket, unstored": over_websocket(previous, store=False),
    "warm up, WebSocket": over_websocket(previous, generate=False),
    "continue with her output, WebSocket": over_websocket(previous, input=[output("call_of_alice")]),
}
OF_ITEMS: dict[str, Ask] = {
    "get": fetched(),
    "delete": deleted,
    "refer": over_http(reference),
    "refer, streamed": over_http(reference, stream=True),
    "refer, unstored": over_http(reference, store=False),
    "refer, WebSocket": over_websocket(reference),
    "refer, WebSocket, unstored": over_websocket(reference, store=False),
    "warm up, WebSocket": over_websocket(reference, generate=False),
}
OF_CALLS: dict[str, Ask] = {
    "answer": over_http(lone),
    "answer, streamed": over_http(lone, stream=True),
    "answer, unstored": over_http(lone, store=False),
    "answer, as if of a custom tool": over_http(lone_custom),
    "refer": over_http(reference),
    "answer, WebSocket": over_websocket(lone),
    "answer, WebSocket, unstored": over_websocket(lone, store=False),
}
MATRIX = [
    *((name, of, ask) for of in ("response", "latest") for name, ask in OF_RESPONSES.items()),
    *((name, of, ask) for of in ("sent", "answered", "call_item") for name, ask in OF_ITEMS.items()),
    *((name, "call", ask) for name, ask in OF_CALLS.items()),
]


@pytest.mark.parametrize(("name", "of", "ask"), MATRIX, ids=[f"{name}: {of}" for name, of, _ in MATRIX])
def test_resources_of_another_owner_are_answered_as_unknown(
    here: Lab, hers: Hers, name: str, of: str, ask: Ask
) -> None:
    """PREV-3: one answer; no upstream call is made, and nothing of hers changes."""
    del name
    id = hers[of]
    unknown = never(id)
    assert unknown != id
    assert len(unknown) == len(id)
    before = alices(here, hers)
    here.chat.received.clear()
    response, as_if = ask(here, id), ask(here, unknown)
    assert str(response).replace(id, "ID") == str(as_if).replace(unknown, "ID")
    assert "ecret" not in str(response)
    assert not [received for received in here.chat.received if b"Still there?" not in received.body]
    assert alices(here, hers) == before


def alices(here: Lab, hers: Hers) -> list[str]:
    return [
        here.get(path, key=ALICE).text for path in (hers["response"], hers["latest"], f"{hers['response']}/input_items")
    ]


def test_resources_are_available_to_their_owner(here: Lab, hers: Hers) -> None:
    """Otherwise the matrix would prove nothing: each id works for its owner."""
    assert here.get(hers["response"], key=ALICE).status_code == 200
    assert here.ask("Go on.", previous_response_id=hers["latest"], key=ALICE).status_code == 200
    for of in ("sent", "answered"):
        assert here.ask([{"type": "item_reference", "id": hers[of]}], key=ALICE).status_code == 200
    assert here.ask([output(hers["call"])], key=ALICE, tools=TOOLS).status_code == 200
    with here.socket(key=ALICE) as talk:
        talk.told("Go on.", previous_response_id=hers["latest"])


def test_two_owners_may_use_the_same_ids(here: Lab, hers: Hers) -> None:
    """Ids chosen by clients and servers belong to each owner: the same item and call ids, other contents."""
    here.says.append(turn(testing.text("Bob's."), testing.tool_call(hers["call"], "g", "{}")))
    his = here.told([message("user", "Bob's own.", id=hers["sent"])], tools=TOOLS, key=BOB)
    for key, text, name in ((ALICE, "Alice's secret.", "f"), (BOB, "Bob's own.", "g")):
        here.told([{"type": "item_reference", "id": hers["sent"]}, output(hers["call"])], tools=TOOLS, key=key)
        sent = here.chat.received[-1].json["messages"]
        assert (sent[0]["content"], sent[1]["tool_calls"][0]["function"]["name"]) == (text, name)
    assert here.delete(his["id"], key=BOB).status_code == 200
    assert here.get(hers["response"], key=ALICE).status_code == 200
    here.told([output(hers["call"])], tools=TOOLS, key=ALICE)


def test_connection_memory_is_private_to_its_owner(here: Lab) -> None:
    """WS-5, WS-6: bob's connection cannot continue a response in the memory of alice's connection."""
    with here.socket(key=ALICE) as hers, here.socket(key=BOB) as his:
        first = hers.told("One", store=False)
        for store in (True, False):
            error = his.refused("Two", store=store, previous_response_id=first["id"])
            assert error["code"] == "previous_response_not_found"
        hers.told("Two", store=False, previous_response_id=first["id"])
