"""`gateway/restore_reasoning` and its use in `gateway/history`: dropped reasoning is restored from stored turns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.gateway.test_history import Bench, asked, on_every_store, user

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.gateway.restore_reasoning import find_missing_reasoning, restore_reasoning
from antiphon.gateway.turn_data import lacks_reasoning
from antiphon.protocol import codec
from antiphon.protocol.items import ItemParam

Json = dict[str, Any]


def thought(id: str, maker: str = "lab", **members: Any) -> Json:
    sealed = seal_reasoning(maker, {"reasoning_content": id})
    return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": sealed, "status": "completed", **members}


def call(call_id: str, name: str = "f") -> Json:
    made = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": "{}"}
    return {**made, "status": "completed"}


def result(call_id: str) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": "42"}


def says(text: str) -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"msg_{text}", "role": "assistant", "status": "completed", "content": [part]}


def items(*given: Json) -> list[ItemParam]:
    decoded: list[ItemParam] = codec.decode_as(msgspec.json.encode(given), list[ItemParam])
    return decoded


def names(given: list[ItemParam]) -> list[str]:
    return [str(getattr(item, "call_id", None) or getattr(item, "id", None) or "user") for item in given]


def put_back(history: list[Json], *outputs: list[Json], maker: str = "lab") -> list[str]:
    return names(restore_reasoning(items(*history), [items(*output) for output in outputs], maker))


def test_reasoning_is_restored_before_its_calls() -> None:
    """RSN-2: each before its own call, in every turn of the history."""
    first = [thought("rs_1"), call("a"), call("b"), thought("rs_2"), call("c")]
    second = [thought("rs_3"), call("d")]
    history = [
        user("Go."),
        call("a"),
        call("b"),
        call("c"),
        result("a"),
        result("b"),
        result("c"),
        call("d"),
        result("d"),
    ]
    assert put_back(history, first, second) == ["user", "rs_1", "a", "b", "rs_2", "c", "a", "b", "c", "rs_3", "d", "d"]


def test_reasoning_is_restored_before_its_messages() -> None:
    """RSN-2: some servers require that a turn starts with reasoning."""
    output = [thought("rs_1"), says("one"), thought("rs_2"), says("two"), thought("rs_3"), call("a")]
    assert put_back([says("one"), says("two"), call("a"), result("a")], output) == [
        "rs_1", "msg_one", "rs_2", "msg_two", "rs_3", "a", "a",
    ]  # fmt: skip
    assert put_back([call("a"), result("a")], output) == ["rs_1", "rs_2", "rs_3", "a", "a"]
    assert put_back([call("z"), says("two"), call("a"), result("a")], output) == [
        "z",
        "rs_1",
        "rs_2",
        "msg_two",
        "rs_3",
        "a",
        "a",
    ]


def test_plain_reasoning_is_replaced_by_the_sealed_form() -> None:
    """RSN-2: a chat client's reasoning has no id."""
    open_text = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    assert put_back([open_text, call("a"), result("a")], [thought("rs_1"), call("a")]) == ["rs_1", "a", "a"]


def test_other_reasoning_of_a_completed_turn_is_restored() -> None:
    """RSN-2: clients drop reasoning without text, such as the signature of a call."""
    output = [thought("rs_1"), thought("rs_2"), call("a"), thought("rs_3"), call("b")]
    plain = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert put_back([plain, call("a"), call("b"), result("a")], output) == ["rs_1", "rs_2", "a", "rs_3", "b", "a"]


def test_reasoning_with_an_id_is_completed() -> None:
    """RSN-2: it keeps the fields that the client sent."""
    stripped = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "short"}]}
    (completed, *_) = restore_reasoning(items(stripped, says("so")), [items(thought("rs_1"), says("so"))], "lab")
    assert completed == items({**stripped, "encrypted_content": thought("rs_1")["encrypted_content"]})[0]


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        [[call("a")]],
        [[thought("rs_1", maker="other"), call("a")]],
        [[thought("rs_1", encrypted_content="gAAA"), call("a")]],
        [[thought("rs_1", encrypted_content=None), call("a")]],
        [[thought("rs_1"), call("a", name="g")]],
        [[thought("rs_1"), call("z")]],
    ],
)
def test_unrelated_reasoning_is_not_restored(outputs: list[list[Json]]) -> None:
    """RSN-3: the same list is returned."""
    history = items(user("Go."), call("a"), result("a"))
    assert restore_reasoning(history, [items(*output) for output in outputs], "lab") is history


def test_reasoning_sent_by_the_client_is_unchanged() -> None:
    """RSN-2."""
    history = [user("Go."), thought("rs_1"), says("so"), call("a"), result("a"), says("done"), user("And?")]
    assert find_missing_reasoning(items(*history)) == ([], [])
    assert put_back(history, [thought("rs_9"), call("a")]) == ["user", "rs_1", "msg_so", "a", "a", "msg_done", "user"]


def test_missing_reasoning_is_listed_by_ids() -> None:
    """RSN-2: a request without such an item makes no store call."""
    stripped = {"type": "reasoning", "id": "rs_1", "summary": []}
    custom = {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": "x"}
    assert find_missing_reasoning(items(stripped, call("a"), custom, result("a"))) == (["rs_1"], ["a", "b"])
    assert not lacks_reasoning(asked(user("Go."), says("so")))
    assert lacks_reasoning(asked(call("a"), result("a")))
    assert not lacks_reasoning(codec.decode_request(b'{"model":"m","input":"Go."}'))


@on_every_store
async def test_store_restores_reasoning_that_the_client_dropped(bench: Bench) -> None:
    """RSN-2: with the whole history, with a call that was dropped too, only for the owner, and only on request."""
    await bench.keep("resp_1", asked(user("Go.")), [thought("rs_1"), call("call_1")])
    await bench.keep("resp_2", asked(user("Go."), call("call_1"), result("call_1")), [thought("rs_2"), call("call_2")])
    whole = asked(user("Go."), call("call_1"), result("call_1"), call("call_2"), result("call_2"))
    resolved = await bench.resolve_history(whole, maker="lab")
    assert names(resolved.new_items) == ["user", "rs_1", "call_1", "call_1", "rs_2", "call_2", "call_2"]
    assert resolved.request.input == resolved.new_items
    lone = await bench.resolve_history(asked(user("Go."), result("call_1")), maker="lab")
    assert names(lone.new_items) == ["user", "rs_1", "call_1", "call_1"]
    untouched: list[dict[str, Any]] = [
        {},
        {"maker": "other"},
        {"maker": "lab", "owner": "bob"},
        {"maker": "lab", "limit": 1},
    ]
    for settings in untouched:
        assert (await bench.resolve_history(whole, **settings)).new_items == whole.input


@on_every_store
async def test_complete_history_makes_no_store_call(bench: Bench) -> None:
    """RSN-2."""
    bench.store = None
    whole = asked(user("Go."), call("call_1"), result("call_1"))
    assert (await bench.resolve_history(whole, maker="lab")).new_items == whole.input
