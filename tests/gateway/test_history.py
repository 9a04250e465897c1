"""`gateway/history` and `gateway/recording`: the resolved history of a turn, as it was stored, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.store.stores import NO_LIMIT, STORE_OPENERS, STORES

from antiphon.errors import ApiError
from antiphon.gateway.compaction import (
    CompactionOpener,
    add_summary,
    encode_contents_without_summary,
    fingerprint,
)
from antiphon.gateway.history import (
    HistorySource,
    ResolvedRequest,
    decode_past_turns,
    past_turns_of,
    resolve_history,
)
from antiphon.gateway.recording import ResponseRecorder, input_with_ids, response_from_record
from antiphon.gateway.sealing import Seal
from antiphon.gateway.stored_items import LargeHistory, check_local_size
from antiphon.gateway.turn_data import is_self_contained
from antiphon.protocol import codec
from antiphon.protocol.items import Item
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.store.interface import Store, StoredTurn

MESSAGE: dict[str, Any] = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant"}
CALL: dict[str, Any] = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": "{}",
    "status": "completed",
}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "call_1", "output": "42"}


def says(text: str, id: str = "msg_1") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {**MESSAGE, "id": id, "content": [part]}


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def asked(*items: dict[str, Any], **fields: Any) -> Request:
    return codec.decode_request(msgspec.json.encode({"model": "m", "input": list(items), **fields}))


class Bench:
    """A store with a few turns in it."""

    def __init__(self, store: Store | None) -> None:
        self.store = store
        numbers = iter(range(10_000))
        self._stamps = Stamps(lambda prefix: f"{prefix}_new{next(numbers)}", lambda: 1_760_000_000)

    async def keep(self, id: str, request: Request, output: list[dict[str, Any]], owner: str = "alice") -> StoredTurn:
        """A turn as the gateway stores it, after its chain."""
        resolved = await self.resolve_history(request, owner)
        items: list[Item] = codec.decode_as(msgspec.json.encode(output), list[Item])
        response = msgspec.structs.replace(
            make_initial_response(request, id=id, created_at=1_760_000_000),
            output=items,
            status="completed",
            completed_at=1_760_000_001,
        )
        recorded_input = input_with_ids(resolved.new_items, self._stamps)
        return await ResponseRecorder(self.store, owner, recorded_input, self._stamps).save(response)

    async def resolve_history(
        self, request: Request, owner: str = "alice", limit: int = NO_LIMIT, **settings: Any
    ) -> ResolvedRequest:
        return await resolve_history(request, HistorySource(owner=owner, store=self.store, limit=limit), **settings)


def on_every_store(test: Callable[[Bench], Awaitable[None]]) -> Any:
    @pytest.mark.parametrize("place", STORES)
    def run(place: str) -> None:
        async def within() -> None:
            async with STORE_OPENERS[place]() as store:
                await test(Bench(store))

        asyncio.run(within())

    run.__doc__ = test.__doc__
    return run


def plain_items(items: list[Any]) -> list[dict[str, Any]]:
    """Items as JSON, without assigned ids."""
    read = msgspec.json.decode(codec.encode(items))
    return [{name: value for name, value in item.items() if name != "id"} for item in read]


def bare(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name != "id"} for item in items]


async def refused(bench: Bench, request: Request, owner: str = "alice") -> ApiError:
    with pytest.raises(ApiError) as caught:
        await bench.resolve_history(request, owner)
    return caught.value


@on_every_store
async def test_chain_is_resolved_whole_and_in_order(bench: Bench) -> None:
    """PREV-1, PREV-2: input and output of each turn, the oldest first; instructions are the new request's alone."""
    await bench.keep("resp_1", asked(user("one"), instructions="Be brief."), [says("1")])
    await bench.keep("resp_2", asked(user("two"), previous_response_id="resp_1"), [says("2", "msg_2")])
    resolved = await bench.resolve_history(asked(user("three"), previous_response_id="resp_2"))
    assert plain_items(codec.decode_as(codec.encode(resolved.request.input), list[Any])) == bare(
        user("one"), says("1"), user("two"), says("2"), user("three")
    )
    assert not resolved.request.instructions
    assert plain_items(resolved.new_items) == [user("three")]
    assert plain_items(decode_past_turns(resolved.past_turns)) == bare(user("one"), says("1"), user("two"), says("2"))


@on_every_store
async def test_long_chain_is_resolved_whole(bench: Bench) -> None:
    """PREV-1: however long."""
    previous: dict[str, Any] = {}
    for number in range(60):
        await bench.keep(
            f"resp_{number}", asked(user(f"ask {number}"), **previous), [says(f"say {number}", f"msg_{number}")]
        )
        previous = {"previous_response_id": f"resp_{number}"}
    resolved = await bench.resolve_history(asked(user("last"), **previous))
    assert isinstance(resolved.request.input, list)
    assert len(resolved.request.input) == 121


@on_every_store
async def test_unknown_deleted_and_foreign_ids_get_the_same_error(bench: Bench) -> None:
    """PREV-3: unknown, deleted, and of another owner."""
    assert bench.store is not None
    await bench.keep("resp_1", asked(user("one")), [says("1")])
    await bench.keep("resp_2", asked(user("two")), [says("2")])
    assert await bench.store.delete("alice", "resp_2")
    never = await refused(bench, asked(previous_response_id="resp_9"))
    deleted = await refused(bench, asked(previous_response_id="resp_2"))
    others = await refused(bench, asked(previous_response_id="resp_1"), owner="bob")
    for error, id in ((never, "resp_9"), (deleted, "resp_2"), (others, "resp_1")):
        assert (error.status, error.code, error.param) == (400, "previous_response_not_found", "previous_response_id")
        assert error.message == never.message.replace("resp_9", id)


def test_history_without_a_store_is_refused() -> None:
    """PREV-3."""

    async def within() -> None:
        assert (await refused(Bench(None), asked(previous_response_id="resp_1"))).code == "previous_response_not_found"
        assert (await refused(Bench(None), asked({"type": "item_reference", "id": "msg_1"}))).param == "input[0].id"
        assert (await refused(Bench(None), asked(OUTPUT))).code == "orphan_tool_output"

    asyncio.run(within())


def test_output_of_a_tool_search_is_no_orphan() -> None:
    """D-3."""
    search = {"type": "tool_search_call", "call_id": OUTPUT["call_id"], "arguments": {}, "execution": "client"}

    async def within() -> None:
        resolved = await Bench(None).resolve_history(asked(search, OUTPUT))
        assert len(input_items(resolved.request)) == 2
        unanswerable = {"type": "tool_search_call", "arguments": {}}
        assert (await refused(Bench(None), asked(unanswerable, OUTPUT))).code == "orphan_tool_output"

    asyncio.run(within())


@on_every_store
async def test_references_are_resolved_to_their_items(bench: Bench) -> None:
    """ITEM-6: of the chain, and of any other response of the owner."""
    await bench.keep("resp_1", asked(user("one")), [says("1")])
    await bench.keep("resp_2", asked({**user("two"), "id": "mine"}), [says("2", "msg_2")])
    references = [{"type": "item_reference", "id": id} for id in ("msg_1", "msg_2", "mine")]
    resolved = await bench.resolve_history(asked(*references, user("and?"), previous_response_id="resp_1"))
    assert plain_items(resolved.new_items) == bare(says("1"), says("2"), user("two"), user("and?"))
    error = await refused(bench, asked(user("x"), {"type": "item_reference", "id": "msg_7"}))
    assert (error.status, error.code, error.param) == (400, "invalid_value", "input[1].id")
    others = await refused(bench, asked(user("x"), {"type": "item_reference", "id": "msg_1"}), owner="bob")
    assert others.message == error.message.replace("msg_7", "msg_1")


@on_every_store
async def test_lone_output_is_matched_with_its_stored_call(bench: Bench) -> None:
    """D-3: from the chain if there is one, otherwise from the owner's store."""
    await bench.keep("resp_1", asked(user("one")), [CALL, {**CALL, "id": "fc_2", "call_id": "call_2"}])
    other = {**OUTPUT, "call_id": "call_2"}
    chained = await bench.resolve_history(asked(OUTPUT, previous_response_id="resp_1"))
    assert plain_items(chained.new_items) == [OUTPUT]
    resolved = await bench.resolve_history(asked(user("so"), OUTPUT, other, user("go on")))
    assert plain_items(resolved.new_items) == bare(
        user("so"), CALL, {**CALL, "call_id": "call_2"}, OUTPUT, other, user("go on")
    )
    again = await bench.resolve_history(asked(CALL, OUTPUT, other))
    assert plain_items(again.new_items) == bare(CALL, {**CALL, "call_id": "call_2"}, OUTPUT, other)
    assert (await refused(bench, asked(OUTPUT), owner="bob")).code == "orphan_tool_output"


@on_every_store
async def test_ambiguous_call_id_is_refused(bench: Bench) -> None:
    """D-3: some servers number their calls from 0 in every answer, so an ambiguous id is refused."""
    for number in (1, 2):
        await bench.keep(f"resp_{number}", asked(user("one")), [{**CALL, "id": f"fc_{number}"}])
    error = await refused(bench, asked(user("so"), OUTPUT))
    assert (error.status, error.code, error.param) == (400, "orphan_tool_output", "input[1].call_id")


@on_every_store
async def test_output_in_a_chain_needs_a_call_of_the_chain(bench: Bench) -> None:
    """WS-13, D-3: an output without a call in the chain is an orphan, whatever other responses the owner has."""
    await bench.keep("resp_1", asked(user("one")), [CALL])
    await bench.keep("resp_2", asked(user("two")), [says("2")])
    error = await refused(bench, asked(OUTPUT, previous_response_id="resp_2"))
    assert (error.code, error.param) == ("orphan_tool_output", "input[0].call_id")
    allowed = await bench.resolve_history(asked(OUTPUT, previous_response_id="resp_2"), allow_orphans=True)
    assert plain_items(allowed.new_items) == [OUTPUT]


@on_every_store
async def test_tool_use_inside_a_message_counts_as_a_call(bench: Bench) -> None:
    used = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "call_1", "name": "f", "input": {}}],
    }
    assert plain_items((await bench.resolve_history(asked(used, OUTPUT))).new_items)[1] == OUTPUT


@on_every_store
async def test_incomplete_call_is_dropped_from_the_history(bench: Bench) -> None:
    """An item dropped from a conversation is a loss."""
    cut = {**CALL, "arguments": '{"a', "status": "incomplete"}
    await bench.keep("resp_1", asked(user("one")), [says("1"), cut])
    resolved = await bench.resolve_history(asked(user("go on"), previous_response_id="resp_1"))
    assert plain_items(resolved.request.input or []) == bare(user("one"), says("1"), user("go on"))  # type: ignore[arg-type]
    assert [loss.path for loss in resolved.losses] == ["previous_response_id"]


@on_every_store
async def test_stored_turns_are_restored_byte_for_byte(bench: Bench) -> None:
    """ITEM-5: unknown items and fields too, and every character."""
    assert bench.store is not None
    odd = {"type": "acme:thing", "id": "x_1", "deep": {"big": 2**53 + 1, "nul": "\u0000", "emoji": "🎶"}}
    bare_odd = {"type": "acme:other", "n": 1}
    request = asked(user("\u0000 🎶"), bare_odd, {**user("b"), "acme": [1]}, metadata={"a": "\u0000"})
    turn = await bench.keep("resp_1", request, [odd, says("\u0000")])
    record = await bench.store.get("alice", "resp_1")
    assert record is not None
    response = response_from_record(record)
    assert msgspec.json.decode(codec.encode(response.output)) == [odd, says("\u0000")]
    assert response.metadata == {"a": "\u0000"}
    assert (record.input, record.output) == (turn.input, turn.output)
    stored_input = msgspec.json.decode(record.input)
    assert all(item["id"] for item in stored_input)
    assert plain_items(decode_past_turns(past_turns_of(turn)))[:3] == bare(
        user("\u0000 🎶"), bare_odd, {**user("b"), "acme": [1]}
    )


def test_request_without_references_is_self_contained() -> None:
    assert is_self_contained(codec.decode_request(b'{"input": "Hi"}'))
    assert is_self_contained(codec.decode_request(b"{}"))
    assert is_self_contained(asked(user("a"), says("b"), CALL))
    assert is_self_contained(asked(CALL, OUTPUT))
    assert not is_self_contained(asked(OUTPUT))
    assert not is_self_contained(asked(OUTPUT, CALL))  # other checks decide about that
    assert not is_self_contained(asked({"type": "item_reference", "id": "msg_1"}))
    assert not is_self_contained(asked(user("a"), previous_response_id="resp_1"))


def test_local_turns_take_precedence_over_the_store() -> None:
    """WS-5: without any store."""
    turn = StoredTurn(id="resp_1", input=codec.encode([user("one")]), output=codec.encode([says("1")]))
    archive = HistorySource(
        owner="alice", store=None, limit=NO_LIMIT, find_local_turns={"resp_1": past_turns_of(turn)}.get
    )
    resolved = asyncio.run(resolve_history(asked(user("two"), previous_response_id="resp_1"), archive))
    assert plain_items(resolved.request.input or []) == bare(user("one"), says("1"), user("two"))  # type: ignore[arg-type]


def test_request_with_a_compaction_is_not_self_contained() -> None:
    for kind in ({"type": "compaction", "encrypted_content": "x"}, {"type": "compaction_trigger"}):
        assert not is_self_contained(asked(user("a"), kind))


def test_calls_inside_a_compaction_match_outputs() -> None:
    """CMP-3: an output finds its call inside the seal, in the input and in a chain."""
    seal = Seal(lambda: [b"k" * 32])
    call: list[Any] = codec.decode_as(msgspec.json.encode([CALL]), list[Item])
    covered = frozenset(map(fingerprint, asked(user("old")).input))  # type: ignore[arg-type]
    contents = add_summary(encode_contents_without_summary([], call, covered), "sum")
    item = {"type": "compaction", "encrypted_content": seal.encrypt("alice", contents)}
    opener = CompactionOpener(seal=seal, owner="alice")
    archive = HistorySource(
        owner="alice",
        store=None,
        limit=NO_LIMIT,
        find_local_turns=lambda _: [msgspec.json.encode([user("old")]), msgspec.json.encode([item])],
    )

    async def grounded(*items: dict[str, Any], **fields: Any) -> ResolvedRequest:
        return await resolve_history(asked(*items, **fields), archive, opener=opener)

    resolved = asyncio.run(grounded(user("old"), item, OUTPUT))
    assert isinstance(resolved.request.input, list)
    assert [type(each).__name__ for each in resolved.request.input] == [
        "MessageParam",
        "FunctionCallParam",
        "FunctionCallOutputParam",
    ]
    assert [type(each).__name__ for each in resolved.new_items] == [
        "MessageParam",
        "CompactionParam",
        "FunctionCallOutputParam",
    ]
    assert resolved.sealed_items == resolved.new_items
    chained = asyncio.run(grounded(OUTPUT, previous_response_id="resp_1"))
    assert chained.request.input == resolved.request.input
    assert len(chained.sealed_items) == 3
    broken = {**item, "encrypted_content": item["encrypted_content"][:-4]}
    archive = HistorySource(
        owner="alice", store=None, limit=NO_LIMIT, find_local_turns=lambda _: [msgspec.json.encode([broken])]
    )
    for items, fields, param in (
        ([user("a"), broken], {}, "input[1].encrypted_content"),
        ([user("a")], {"previous_response_id": "resp_1"}, "previous_response_id"),
    ):
        with pytest.raises(ApiError) as caught:
            asyncio.run(grounded(*items, **fields))
        assert (caught.value.code, caught.value.param) == ("invalid_compaction", param)


def test_lone_output_beside_a_compaction_is_matched_with_its_stored_call() -> None:
    """D-3."""
    seal = Seal(lambda: [b"k" * 32])
    contents = add_summary(encode_contents_without_summary([], [], frozenset()), "sum")
    item = {"type": "compaction", "encrypted_content": seal.encrypt("alice", contents)}

    class OneCall:
        async def find_calls(self, owner: str, call_ids: list[str]) -> dict[str, int]:
            assert (owner, call_ids) == ("alice", ["call_1"])
            return {"call_1": 7}

        async def get_turn(self, owner: str, number: int) -> StoredTurn:
            assert (owner, number) == ("alice", 7)
            return StoredTurn(id="resp_1", input=b"[]", output=msgspec.json.encode([CALL]))

    archive = HistorySource(owner="alice", store=OneCall(), limit=NO_LIMIT)  # type: ignore[arg-type]
    resolved = asyncio.run(
        resolve_history(asked(item, OUTPUT), archive, opener=CompactionOpener(seal=seal, owner="alice"))
    )
    assert isinstance(resolved.request.input, list)
    assert [type(each).__name__ for each in resolved.request.input] == [
        "MessageParam",
        "FunctionCallParam",
        "FunctionCallOutputParam",
    ]


def test_size_above_the_local_limit_is_a_large_history() -> None:
    check_local_size(10, 10)
    check_local_size(11, None)
    with pytest.raises(LargeHistory):
        check_local_size(11, 10)
