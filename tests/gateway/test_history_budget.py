"""`gateway/history_budget`, and what is resolved within it: references, chains, conversations, compactions, on both
stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.test_history import (
    CALL,
    OUTPUT,
    Bench,
    asked,
    bare,
    on_every_store,
    plain_items,
    refused,
    says,
    user,
)
from tests.store.stores import NO_LIMIT, STORE_OPENERS

from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.compaction import (
    CompactionOpener,
    add_summary,
    encode_contents_without_summary,
    fingerprint,
)
from antiphon.gateway.history import HistorySource, ResolvedRequest, resolve_history
from antiphon.gateway.history_budget import HistoryBudget
from antiphon.gateway.sealing import Seal
from antiphon.protocol import codec
from antiphon.protocol.items import ItemParam
from antiphon.store.conversations import ConversationEntry, StoredConversation
from antiphon.store.interface import Store


class Counting:
    """A store that counts its calls, and the bytes of history that it returns."""

    def __init__(self, store: Store) -> None:
        self.asked: Counter[str] = Counter()
        self.read = 0
        self._store = store

    def __getattr__(self, name: str) -> Any:
        async def count(*given: Any, **named: Any) -> Any:
            self.asked[name] += 1
            result = await getattr(self._store, name)(*given, **named)
            match name:
                case "get_turn":
                    self.read += len(result.input) + len(result.output)
                case "get_chain" | "read_all_entries":
                    self.read += len(result.content)
                case "find_outputs":
                    self.read += sum(map(len, result))
            return result

        return count


def reference(id: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": id}


def counting(bench: Bench) -> Counting:
    assert bench.store is not None
    return Counting(bench.store)


async def grounded(store: Any, request: Any, limit: int, **settings: Any) -> ResolvedRequest:
    return await resolve_history(request, HistorySource(owner="alice", store=store, limit=limit), **settings)


async def too_long(store: Any, request: Any, limit: int, **settings: Any) -> ApiError:
    with pytest.raises(ClientFault) as caught:
        await grounded(store, request, limit, **settings)
    error = caught.value
    assert (error.status, error.code) == (400, "context_length_exceeded")
    assert error.param is not None
    assert error.message.startswith(f"{error.param}: ")
    assert f" bytes of JSON, expected at most {limit} " in error.message
    return error


def size_of(item: dict[str, Any]) -> int:
    """The size as stored."""
    return len(msgspec.json.encode(item))


# The budget itself


@given(st.lists(st.integers(0, 50)), st.integers(0, 200))
def test_budget_accepts_items_that_fit_and_names_the_first_excess(sizes: list[int], limit: int) -> None:
    budget, lenient = HistoryBudget(limit), HistoryBudget(limit, drops_oldest=True)
    taken = 0
    for place, size in enumerate(sizes):
        if taken + size <= limit:
            assert budget.take(size, f"input[{place}].id", "it")
            assert lenient.take(size, f"input[{place}].id", "it")
            taken += size
            assert budget.remaining == lenient.remaining == limit - taken
            continue
        assert not lenient.take(size, f"input[{place}].id", "it")
        with pytest.raises(ClientFault) as caught:
            budget.take(size, f"input[{place}].id", "it")
        assert caught.value.param == f"input[{place}].id"
        assert f"{taken + size} bytes" in caught.value.message
        assert f"at most {limit} " in caught.value.message
        return


# References


@on_every_store
async def test_repeated_reference_is_looked_up_once_and_counted_each_time(bench: Bench) -> None:
    item = {**user("x" * 2000), "id": "mine"}
    await bench.keep("resp_1", asked(item), [says("1")])
    store, size = counting(bench), size_of(item)
    resolved = await grounded(store, asked(*[reference("mine")] * 1000), 1000 * size)
    assert len(resolved.new_items) == 1000
    assert store.asked == {"find_items": 1, "get_turn": 1}
    store = counting(bench)
    error = await too_long(store, asked(user("so"), *[reference("mine")] * 1000), 10 * size)
    assert error.param == "input[11].id"
    assert f"has {11 * size} bytes of JSON" in error.message
    assert "the item 'mine' does not fit" in error.message
    assert store.asked == {"find_items": 1, "get_turn": 1}


@on_every_store
async def test_references_into_one_response_read_it_once(bench: Bench) -> None:
    items = [{**user("x" * 100), "id": f"item_{number}"} for number in range(50)]
    await bench.keep("resp_1", asked(*items), [says("1")])
    await bench.keep("resp_2", asked(user("other")), [says("2", "msg_2")])
    store = counting(bench)
    mixed = [reference(each) for item in items for each in (item["id"], "msg_2")]
    resolved = await grounded(store, asked(*mixed), NO_LIMIT)
    assert plain_items(resolved.new_items)[::2] == bare(*items)
    assert store.asked == {"find_items": 1, "get_turn": 2}


@on_every_store
async def test_items_over_the_cache_limit_are_read_again(bench: Bench) -> None:
    """The used items are known only when all sizes are; until then no more than the limit is held. A later reference,
    to an item of another response, may be the one that does not fit."""
    large = {**user("x" * 900), "id": "large"}
    small = {**user("y"), "id": "small"}
    await bench.keep("resp_1", asked(large, small), [says("1")])
    resolved = await grounded(store := counting(bench), asked(reference("small"), truncation="auto"), 1000)
    assert plain_items(resolved.new_items) == bare(small)
    assert store.asked == {"find_items": 1, "get_turn": 1}
    limit = size_of(large) + size_of(small) - 1
    resolved = await grounded(
        store := counting(bench), asked(reference("large"), reference("small"), truncation="auto"), limit
    )
    assert plain_items(resolved.new_items) == bare(small)
    assert store.asked == {"find_items": 1, "get_turn": 2}  # `large` came first, and used the budget


@on_every_store
async def test_reference_deleted_during_resolution_is_refused(bench: Bench) -> None:
    assert bench.store is not None
    items = [{**user("x" * 100), "id": id} for id in ("one", "two")]
    await bench.keep("resp_1", asked(*items), [])
    forgetful = counting(bench)

    async def get_turn(owner: str, number: int) -> Any:
        stored = await bench.store.get_turn(owner, number)  # type: ignore[union-attr]
        await bench.store.delete(owner, "resp_1")  # type: ignore[union-attr]
        return stored

    forgetful.get_turn = get_turn  # type: ignore[attr-defined]
    with pytest.raises(ClientFault) as caught:
        await grounded(forgetful, asked(reference("one"), reference("two"), truncation="auto"), size_of(items[0]))
    assert caught.value.param == "input[1].id"


@on_every_store
async def test_truncation_drops_the_oldest_references_unread(bench: Bench) -> None:
    for number in range(4):
        await bench.keep(
            f"resp_{number}", asked({**user(f"{number}" * 1000), "id": f"item_{number}"}), [says("1", f"msg_{number}")]
        )
    store = counting(bench)
    references = [reference(f"item_{number}") for number in range(4)]
    request = asked(*references[:2], user("between"), *references[2:], truncation="auto")
    size = size_of({**user("0" * 1000), "id": "item_0"})
    resolved = await grounded(store, request, 2 * size)
    assert plain_items(resolved.new_items) == bare(user("between"), user("2" * 1000), user("3" * 1000))
    assert store.asked == {"find_items": 1, "get_turn": 3}  # the third does not fit, the fourth is never read
    assert [(loss.path, loss.what) for loss in resolved.losses] == [
        ("input[1].id", "this reference and those before it, 2 in all")
    ]


@on_every_store
async def test_references_into_the_chain_are_counted(bench: Bench) -> None:
    await bench.keep("resp_1", asked(user("one")), [says("x" * 1000)])
    store = counting(bench)
    request = asked(reference("msg_1"), reference("msg_1"), previous_response_id="resp_1")
    assert len((await grounded(store, request, NO_LIMIT)).new_items) == 2
    assert store.asked == {"get_chain": 1}
    limit = store.read + size_of(says("x" * 1000)) + 100
    assert (await too_long(store, request, limit)).param == "input[1].id"


# Chains and conversations


@on_every_store
async def test_chain_over_the_limit_is_refused_with_its_id(bench: Bench) -> None:
    for number in range(3):
        previous = {"previous_response_id": f"resp_{number - 1}"} if number else {}
        await bench.keep(f"resp_{number}", asked(user("x" * 1000), **previous), [says("1", f"msg_{number}")])
    request = asked(user("so"), previous_response_id="resp_2")
    whole = await grounded(store := counting(bench), request, NO_LIMIT)
    size = store.read + 1
    assert (await grounded(bench.store, request, size)).request == whole.request
    error = await too_long(store := counting(bench), request, size - 1)
    assert error.param == "previous_response_id"
    assert f"the chain of 'resp_2' does not fit: with it the resolved conversation has {size} bytes" in error.message
    assert store.asked == {"get_chain": 1}
    assert store.read == 0


@on_every_store
async def test_truncation_drops_the_oldest_turns_unread(bench: Bench) -> None:
    for number in range(3):
        previous = {"previous_response_id": f"resp_{number - 1}"} if number else {}
        await bench.keep(f"resp_{number}", asked(user(f"{number}" * 1000), **previous), [says("1", f"msg_{number}")])
    store = counting(bench)
    resolved = await grounded(store, asked(user("so"), previous_response_id="resp_2", truncation="auto"), 3000)
    assert plain_items(resolved.request.input or []) == bare(  # type: ignore[arg-type]
        user("1" * 1000), says("1"), user("2" * 1000), says("1"), user("so")
    )
    assert store.read <= 3000
    assert resolved.past_turns == [(await bench.store.get_chain("alice", "resp_2", 3000, drops_oldest=True)).content]  # type: ignore[union-attr]
    assert [(loss.path, loss.what) for loss in resolved.losses] == [
        ("previous_response_id", "the oldest part of the conversation")
    ]
    empty = await grounded(bench.store, asked(user("so"), previous_response_id="resp_2", truncation="auto"), 100)
    assert plain_items(empty.request.input or []) == [user("so")]  # type: ignore[arg-type]
    assert empty.past_turns == []
    whole = await grounded(bench.store, asked(user("so"), previous_response_id="resp_2", truncation="auto"), NO_LIMIT)
    assert len(whole.sealed_items) == 7
    assert not whole.losses


@on_every_store
async def test_truncation_prefers_references_over_the_chain(bench: Bench) -> None:
    await bench.keep("resp_1", asked(user("1" * 1000)), [says("1")])
    await bench.keep("resp_2", asked(user("2" * 1000), previous_response_id="resp_1"), [says("2", "msg_2")])
    await bench.keep("resp_3", asked({**user("3" * 1000), "id": "mine"}), [says("3", "msg_3")])
    request = asked(reference("mine"), previous_response_id="resp_2", truncation="auto")
    resolved = await grounded(bench.store, request, 3000)
    assert plain_items(resolved.request.input or []) == bare(says("1"), user("2" * 1000), says("2"), user("3" * 1000))  # type: ignore[arg-type]
    none_left = await grounded(bench.store, request, size_of({**user("3" * 1000), "id": "mine"}))
    assert plain_items(none_left.request.input or []) == bare(user("3" * 1000))  # type: ignore[arg-type]


@on_every_store
async def test_outputs_of_dropped_calls_are_dropped(bench: Bench) -> None:
    await bench.keep("resp_1", asked(user("1" * 1000)), [CALL])
    await bench.keep("resp_2", asked(OUTPUT, user("and"), previous_response_id="resp_1"), [says("2")])
    request = asked(user("so"), previous_response_id="resp_2", truncation="auto")
    assert plain_items((await grounded(bench.store, request, 1000)).request.input or []) == bare(  # type: ignore[arg-type]
        user("and"), says("2"), user("so")
    )


@on_every_store
async def test_conversation_over_the_limit_is_refused_or_truncated(bench: Bench) -> None:
    assert bench.store is not None
    items = [{**user(f"{number}" * 1000), "id": f"item_{number}"} for number in range(5)]
    entries = [ConversationEntry(id=item["id"], item=msgspec.json.encode(item)) for item in items]
    await bench.store.create_conversation(
        "alice", StoredConversation(id="conv_1", created_at=1, metadata=b"{}"), entries
    )
    size = sum(len(entry.item) + 1 for entry in entries)
    request = asked(user("so"), conversation="conv_1")
    assert len((await grounded(bench.store, request, size)).sealed_items) == 6
    error = await too_long(store := counting(bench), request, size - 1)
    assert error.param == "conversation"
    assert (
        f"the conversation 'conv_1' does not fit: with it the resolved conversation has {size} bytes" in error.message
    )
    assert store.asked == {"read_all_entries": 1}
    assert store.read == 0
    shorter = asked(user("so"), conversation={"id": "conv_1"}, truncation="auto")
    resolved = await grounded(store := counting(bench), shorter, size // 2)
    assert plain_items(resolved.sealed_items) == bare(*items[3:], user("so"))
    assert store.read <= size // 2
    assert [(loss.path, loss.what) for loss in resolved.losses] == [
        ("conversation", "the oldest part of the conversation")
    ]


def test_local_turns_have_the_same_limit_as_stored_turns() -> None:
    """WS-5: refused, or truncated to its newest items, which are remembered from then on."""
    past = [msgspec.json.encode([each]) for each in (user("1" * 1000), says("1"), user("2" * 1000), says("2", "msg_2"))]
    size = len(b",".join(past))

    async def continued(limit: int, **fields: Any) -> ResolvedRequest:
        archive = HistorySource(owner="alice", store=None, limit=limit, find_local_turns={"resp_1": past}.get)
        return await resolve_history(asked(user("so"), previous_response_id="resp_1", **fields), archive)

    async def within() -> None:
        assert len((await continued(size)).sealed_items) == 5
        with pytest.raises(ClientFault) as caught:
            await continued(size - 1)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "previous_response_id")
        assert (
            f"the chain of 'resp_1' does not fit: with it the resolved conversation has {size} bytes"
            in caught.value.message
        )
        for limit in range(0, size, 50):
            resolved = await continued(limit, truncation="auto")
            assert sum(map(len, resolved.past_turns)) <= limit
            assert (
                plain_items(resolved.sealed_items)
                == bare(user("1" * 1000), says("1"), user("2" * 1000), says("2"), user("so"))[
                    -len(resolved.sealed_items) :
                ]
            )
        assert len(resolved.sealed_items) == 4

    asyncio.run(within())


# Calls and reasoning


@on_every_store
async def test_restored_calls_are_counted_and_looked_up_once(bench: Bench) -> None:
    calls = [
        {**CALL, "id": f"fc_{number}", "call_id": f"call_{number}", "arguments": "x" * 100} for number in range(20)
    ]
    await bench.keep("resp_1", asked(user("one")), calls)
    outputs = [{**OUTPUT, "call_id": call["call_id"]} for call in calls]
    store = counting(bench)
    assert len((await grounded(store, asked(*outputs), NO_LIMIT)).new_items) == 40
    assert store.asked == {"find_calls": 1, "get_turn": 1}
    error = await too_long(bench.store, asked(*outputs), 4 * size_of(calls[0]) - 1)
    assert error.param == "input[3].call_id"
    await bench.keep(
        "resp_2", asked(user("two")), [{**CALL, "call_id": "twice"}, {**CALL, "id": "fc_x", "call_id": "twice"}]
    )
    assert (await refused(bench, asked({**OUTPUT, "call_id": "twice"}))).code == "orphan_tool_output"
    lone = [{**OUTPUT, "call_id": "nobody's"}] * 100
    store = counting(bench)
    assert plain_items((await grounded(store, asked(*lone), NO_LIMIT, allow_orphans=True)).new_items) == lone
    assert store.asked == {"find_calls": 1}


@on_every_store
async def test_reasoning_is_restored_within_the_budget(bench: Bench) -> None:
    await bench.keep("resp_1", asked(user("one")), [CALL, says("x" * 1000)])
    store = counting(bench)
    await grounded(store, asked(CALL, OUTPUT), NO_LIMIT, maker="lab")
    assert store.asked == {"find_outputs": 1}
    assert store.read > 1000
    store = counting(bench)
    await grounded(store, asked(CALL, OUTPUT), 1000, maker="lab")
    assert store.read == 0


# Compactions


SEAL = Seal(lambda: [b"k" * 32])


def compaction(text: str, *covered: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A compaction, and the bytes in it."""
    items: list[ItemParam] = codec.decode_as(msgspec.json.encode(covered), list[ItemParam])
    contents = add_summary(encode_contents_without_summary([], [], frozenset(map(fingerprint, items))), text)
    return {"type": "compaction", "encrypted_content": SEAL.encrypt("alice", contents)}, len(contents)


def words(resolved: ResolvedRequest) -> list[str]:
    """The texts in a window; of a summary, its start."""
    texts = [str(item["content"]) for item in plain_items(resolved.request.input or [])]  # type: ignore[arg-type]
    return [next((mark for mark in ("111", "222") if mark in text), text) for text in texts]


def test_compaction_is_counted_before_it_is_decoded() -> None:
    one, size = compaction("1" * 1000)
    two, _ = compaction("2" * 1000)

    def opened(limit: int, **fields: Any) -> ResolvedRequest:
        request = asked(user("old"), one, user("between"), two, user("so"), **fields)
        opener = CompactionOpener(seal=SEAL, owner="alice")
        return asyncio.run(
            resolve_history(request, HistorySource(owner="alice", store=None, limit=limit), opener=opener)
        )

    assert words(opened(2 * size)) == ["old", "111", "between", "222", "so"]
    with pytest.raises(ClientFault) as caught:
        opened(2 * size - 1)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input[1].encrypted_content")
    auto = opened(2 * size - 1, truncation="auto")
    assert words(auto) == ["between", "222", "so"]
    assert [loss.path for loss in auto.losses] == ["input[1].encrypted_content"]
    none = opened(size - 1, truncation="auto")
    assert words(none) == ["so"]
    assert [loss.what for loss in none.losses] == ["the compaction, and everything before it"]


def test_compaction_has_priority_over_the_items_it_replaces() -> None:
    """With truncation: items older than a compaction are dropped for it."""
    item, size = compaction("1" * 1000, user("x" * 3000))
    past = [msgspec.json.encode([user("x" * 3000)]), msgspec.json.encode([user("unseen"), item])]
    archive = HistorySource(
        owner="alice", store=None, limit=len(b",".join(past)) + size - 1, find_local_turns=lambda _: past
    )
    request = asked(user("so"), previous_response_id="resp_1", truncation="auto")
    resolved = asyncio.run(resolve_history(request, archive, opener=CompactionOpener(seal=SEAL, owner="alice")))
    assert words(resolved) == ["111", "so"]
    assert [loss.what for loss in resolved.losses] == ["everything before the compaction"]


def test_compaction_is_opened_and_counted_once() -> None:
    """D-3: a restored call changes the window."""
    item, size = compaction("1" * 1000)

    async def within() -> None:
        async with STORE_OPENERS["sqlite"]() as store:
            bench = Bench(store)
            await bench.keep("resp_1", asked(user("one")), [CALL])
            limit = size + size_of(CALL)
            opener = CompactionOpener(seal=SEAL, owner="alice")
            resolved = await grounded(store, asked(item, OUTPUT), limit, opener=opener)
            assert plain_items(resolved.new_items)[1:] == bare(CALL, OUTPUT)

    asyncio.run(within())


@on_every_store
async def test_unknown_reference_is_refused_within_the_budget(bench: Bench) -> None:
    error = await refused(bench, asked(user("x"), reference("msg_7")))
    assert (error.code, error.param) == ("invalid_value", "input[1].id")
