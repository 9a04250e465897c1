"""Laws of every store: each law on each store, and all of them against a model and against each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, Protocol

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from tests.store.stores import (
    NO_LIMIT,
    STORE_OPENERS,
    STORES,
    find_turn_by_call,
    find_turn_by_item,
    join_chain,
    read_chain,
    record,
)

from antiphon.errors import StorageUnavailable
from antiphon.store.interface import Excerpt, ResponseRecord, Store, StoredTurn

ODD = [
    "",
    "\0",
    "a\0b",
    "\N{GRINNING FACE}",
    "e\N{COMBINING ACUTE ACCENT}",
    "%",
    "'; --",
    "x" * 3000,
    "\ufeff",
    "\U0010ffff",
]
JSON_BYTES = b'{"z":1,"a":9007199254740993,"nul":"\\u0000","face":"\xf0\x9f\x98\x80","f":1.10,"z":2, "space" : []}'


class Run(Protocol):
    def __call__(self, law: Callable[[Store], Awaitable[None]]) -> None: ...


@pytest.fixture(params=STORES)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a law on an empty store."""

    def run(law: Callable[[Store], Awaitable[None]]) -> None:
        async def inside() -> None:
            async with STORE_OPENERS[request.param]() as store:
                await law(store)
                assert await store.verify() == []

        asyncio.run(inside())

    return run


def turn(stored: ResponseRecord) -> StoredTurn:
    return StoredTurn(id=stored.id, input=stored.input, output=stored.output)


async def save(store: Store, *records: ResponseRecord, owner: str = "anna") -> None:
    for each in records:
        await store.save(owner, each, [], [])


# One response


def test_saved_response_is_read_byte_by_byte(run: Run) -> None:
    async def law(store: Store) -> None:
        stored = ResponseRecord(
            id="resp_1",
            previous="resp_0",
            created_at=1,
            status="incomplete",
            head=JSON_BYTES,
            input=b"[]",
            output=JSON_BYTES * 2,
        )
        await save(store, stored)
        assert await store.get("anna", "resp_1") == stored

    run(law)


def test_large_response_is_stored_whole(run: Run) -> None:
    async def law(store: Store) -> None:
        stored = replace(
            record("resp_1"), head=b"h" * 1_000_003, input=JSON_BYTES * 20_000, output=bytes(range(256)) * 5_000
        )
        await save(store, stored, replace(stored, id="resp_2", previous="resp_1"))
        assert await store.get("anna", "resp_1") == stored
        assert await read_chain(store, "anna", "resp_2") == join_chain(stored, stored)

    run(law)


@pytest.mark.parametrize("at", [0, -1, 2**31, 2**53 + 1, 2**63 - 1])
def test_creation_time_is_stored_exactly(run: Run, at: int) -> None:
    async def law(store: Store) -> None:
        await save(store, record("resp_1", at=at))
        stored = await store.get("anna", "resp_1")
        assert stored
        assert stored.created_at == at
        assert (await store.stats()).oldest == at

    run(law)


def test_odd_ids_are_stored_and_looked_up(run: Run) -> None:
    async def law(store: Store) -> None:
        for number, id in enumerate(ODD):
            stored = ResponseRecord(
                id=id, previous=None, created_at=number, status=id, head=b"", input=b"%d" % number, output=b""
            )
            await store.save(f"owner {id}", stored, [id, id], [id])
            await store.save(f"owner {id}", replace(stored, id=f"{id}2", previous=id), [], [])
        for number, id in enumerate(ODD):
            stored = ResponseRecord(
                id=id, previous=None, created_at=number, status=id, head=b"", input=b"%d" % number, output=b""
            )
            assert await store.get(f"owner {id}", id) == stored
            assert await read_chain(store, f"owner {id}", f"{id}2") == join_chain(stored, stored)
            assert await find_turn_by_item(store, f"owner {id}", id) == turn(stored)
            assert await find_turn_by_call(store, f"owner {id}", id) == turn(stored)
            assert await store.delete(f"owner {id}", id)
            assert await store.get(f"owner {id}", id) is None

    run(law)


def test_unknown_id_gives_no_result(run: Run) -> None:
    async def law(store: Store) -> None:
        assert await store.get("anna", "resp_1") is None
        assert await read_chain(store, "anna", "resp_1") is None
        assert await find_turn_by_item(store, "anna", "msg_1") is None
        assert await find_turn_by_call(store, "anna", "call_1") is None
        assert await store.delete("anna", "resp_1") is False

    run(law)


def test_second_save_replaces_the_first(run: Run) -> None:
    async def law(store: Store) -> None:
        await store.save("anna", record("resp_1", text=b"one"), ["msg_old", "msg_both"], ["call_old"])
        await store.save("anna", record("resp_2", "resp_1"), ["msg_both"], [])
        second = record("resp_1", at=7, text=b"two")
        await store.save("anna", second, ["msg_both", "msg_new"], ["call_new"])
        assert await store.get("anna", "resp_1") == second
        assert await read_chain(store, "anna", "resp_2") == join_chain(second, record("resp_2"))
        assert await find_turn_by_item(store, "anna", "msg_old") is None
        assert await find_turn_by_item(store, "anna", "msg_new") == turn(second)
        assert await find_turn_by_item(store, "anna", "msg_both") == turn(
            record("resp_2")
        )  # it is still the newer of the two
        assert await find_turn_by_call(store, "anna", "call_old") is None
        assert await find_turn_by_call(store, "anna", "call_new") == turn(second)
        assert (await store.stats()).responses == 2

    run(law)


def test_concurrent_saves_are_all_stored(run: Run) -> None:
    async def law(store: Store) -> None:
        async def one(number: int) -> None:
            id = f"resp_{number % 150}"  # some of them twice
            await store.save("anna", record(id), [f"msg_{number}"], [f"call_{number % 150}"])
            assert await store.get("anna", id) == record(id)

        await asyncio.gather(*map(one, range(200)))
        assert (await store.stats()).responses == 150
        assert all(
            [
                await find_turn_by_call(store, "anna", f"call_{number}") == turn(record(f"resp_{number}"))
                for number in range(150)
            ]
        )

    run(law)


def test_response_is_looked_up_by_many_ids(run: Run) -> None:
    async def law(store: Store) -> None:
        await store.save(
            "anna", record("resp_1"), [f"msg_{number % 500}" for number in range(1000)], ["call_1", "call_1"]
        )
        assert await find_turn_by_item(store, "anna", "msg_499") == turn(record("resp_1"))
        assert await find_turn_by_call(store, "anna", "call_1") == turn(record("resp_1"))
        assert (await store.stats()).items == 500

    run(law)


def test_cancelled_calls_do_not_affect_later_ones(run: Run) -> None:
    async def law(store: Store) -> None:
        waiting = [
            asyncio.create_task(store.save("anna", record("resp_1"), [], [])),
            asyncio.create_task(store.delete("anna", "resp_1")),
            asyncio.create_task(read_chain(store, "anna", "resp_1")),
        ]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        await save(store, record("resp_2"))
        assert await store.get("anna", "resp_2") == record("resp_2")

    run(law)


# Chains


def test_chain_is_read_oldest_first(run: Run) -> None:
    async def law(store: Store) -> None:
        chain = [record(f"resp_{n}", f"resp_{n - 1}" if n else None, text=b"%d" % n) for n in range(50)]
        await save(store, *reversed(chain))
        assert await read_chain(store, "anna", "resp_49") == join_chain(*chain)
        assert await read_chain(store, "anna", "resp_0") == join_chain(chain[0])

    run(law)


def test_chains_may_branch(run: Run) -> None:
    async def law(store: Store) -> None:
        await save(store, record("root"), record("left", "root"), record("right", "root"))
        assert await read_chain(store, "anna", "left") == join_chain(record("root"), record("left"))
        assert await read_chain(store, "anna", "right") == join_chain(record("root"), record("right"))

    run(law)


def test_chain_with_a_deleted_response_is_not_returned(run: Run) -> None:
    """PREV-2: an incomplete history is not continued."""

    async def law(store: Store) -> None:
        await save(store, record("a"), record("b", "a"), record("c", "b"))
        assert await store.delete("anna", "a")
        assert await read_chain(store, "anna", "c") is None
        assert await store.get("anna", "c") == record("c", "b")
        await save(store, record("a"))
        assert await read_chain(store, "anna", "c") == join_chain(record("a"), record("b"), record("c"))

    run(law)


def test_circular_chain_is_not_returned(run: Run) -> None:
    async def law(store: Store) -> None:
        await save(
            store, record("self", "self"), record("x", "y"), record("y", "z"), record("z", "x"), record("tail", "x")
        )
        for id in ("self", "x", "y", "z", "tail"):
            assert await read_chain(store, "anna", id) is None

    run(law)


def test_chain_of_a_thousand_turns_is_read(run: Run) -> None:
    async def law(store: Store) -> None:
        chain = [record(f"resp_{n}", f"resp_{n - 1}" if n else None) for n in range(1000)]
        await asyncio.gather(*(save(store, each) for each in chain))
        assert await read_chain(store, "anna", "resp_999") == join_chain(*chain)

    run(law)


# Ownership


def test_response_of_another_owner_does_not_exist(run: Run) -> None:
    async def law(store: Store) -> None:
        await store.save("anna", record("resp_1"), ["msg_1"], ["call_1"])
        await store.save("anna", record("resp_2", "resp_1"), [], [])
        assert await store.get("bert", "resp_1") is None
        assert await read_chain(store, "bert", "resp_1") is None
        assert await find_turn_by_item(store, "bert", "msg_1") is None
        assert await find_turn_by_call(store, "bert", "call_1") is None
        assert await store.delete("bert", "resp_1") is False
        assert await store.get("anna", "resp_1") == record("resp_1")

    run(law)


def test_two_owners_may_have_the_same_ids(run: Run) -> None:
    async def law(store: Store) -> None:
        for owner in ("anna", "bert"):
            await store.save(owner, record("resp_1", text=owner.encode()), ["msg_1"], ["call_1"])
        assert await store.delete("anna", "resp_1")
        for stored in (
            [await find_turn_by_item(store, "bert", "msg_1")],
            [await find_turn_by_call(store, "bert", "call_1")],
        ):
            assert stored == [turn(record("resp_1", text=b"bert"))]
        assert await read_chain(store, "bert", "resp_1") == join_chain(record("resp_1", text=b"bert"))
        assert await store.get("anna", "resp_1") is None

    run(law)


def test_chain_does_not_include_responses_of_another_owner(run: Run) -> None:
    async def law(store: Store) -> None:
        await save(store, record("resp_1"), owner="bert")
        await save(store, record("resp_2", "resp_1"))
        assert await read_chain(store, "anna", "resp_2") is None

    run(law)


# Lookup by items and calls


def test_item_lookup_returns_the_last_saved_response(run: Run) -> None:
    async def law(store: Store) -> None:
        for id, at in (("first", 30), ("second", 20), ("third", 10)):
            await store.save("anna", record(id, at=at), ["msg_1"], [])
        assert await find_turn_by_item(store, "anna", "msg_1") == turn(record("third"))
        assert await store.delete("anna", "third")
        assert await find_turn_by_item(store, "anna", "msg_1") == turn(record("second"))

    run(law)


@pytest.mark.parametrize("id", ["msg_" + "0" * 40, "fco_" + "0f" * 20 + "x1a"])
def test_lookup_of_an_assigned_id_returns_its_first_response(run: Run, id: str) -> None:
    """It belongs to one item forever; a response with it in its history does not store it again."""

    async def law(store: Store) -> None:
        for response in ("first", "second", "third"):
            await store.save("anna", record(response), [id, "msg_1"], [])
        assert await find_turn_by_item(store, "anna", id) == turn(record("first"))
        assert (await store.stats()).items == 2
        await store.save("anna", record("first"), [id], [])  # once more, with its own response
        assert await find_turn_by_item(store, "anna", id) == turn(record("first"))
        assert await store.delete("anna", "first")
        assert await find_turn_by_item(store, "anna", id) is None
        await store.save("anna", record("fourth"), [id], [])
        assert await find_turn_by_item(store, "anna", id) == turn(record("fourth"))

    run(law)


def test_ambiguous_call_lookup_gives_no_result(run: Run) -> None:
    async def law(store: Store) -> None:
        await store.save("anna", record("a"), [], ["call_1"])
        assert await find_turn_by_call(store, "anna", "call_1") == turn(record("a"))
        await store.save("anna", record("b"), [], ["call_1"])
        assert await find_turn_by_call(store, "anna", "call_1") is None

    run(law)


def test_find_items_looks_up_many_ids_at_once(run: Run) -> None:
    """Long ids too, which PostgreSQL looks up by a digest."""

    async def law(store: Store) -> None:
        long = "x" * 3000
        await store.save("anna", record("a"), ["one", long], ["one", f"{long}1"])
        await store.save("anna", record("b"), ["two", long], ["two"])
        items = await store.find_items("anna", ["one", "two", long, f"{long}1", "three"])
        assert sorted(items) == sorted(["one", "two", long])
        assert items["two"] == items[long] != items["one"]
        calls = await store.find_calls("anna", ["one", "two", f"{long}1", "three"])
        assert calls == {"one": items["one"], "two": items["two"], f"{long}1": items["one"]}
        assert await store.find_items("anna", []) == await store.find_calls("anna", []) == {}
        assert await store.find_items("bert", ["one"]) == {}
        assert await store.get_turn("bert", items["one"]) is None
        assert await store.get_turn("anna", max(items.values()) + 1) is None

    run(law)


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "the first last"])
def test_chain_over_the_limit_drops_the_oldest(run: Run, in_order: bool) -> None:
    """Each limit, exactly: a turn counts its input, its output, and a comma after each."""

    async def law(store: Store) -> None:
        chain = [record("a", text=b"xx"), record("b", "a"), record("c", "b", text=b"x" * 9)]
        await save(store, *(chain if in_order else (*chain[1:], chain[0])))
        sizes = [len(each.input) + len(each.output) + 2 for each in chain]
        for limit in range(sum(sizes) + 2):
            fitting = [each for at, each in enumerate(chain) if sum(sizes[at:]) <= limit]
            expected = Excerpt(content=join_chain(*fitting), size=sum(sizes), omitted_count=3 - len(fitting))
            assert await store.get_chain("anna", "c", limit, drops_oldest=True) == expected
            if len(fitting) < 3:
                expected = replace(expected, content=b"")
            assert await store.get_chain("anna", "c", limit, drops_oldest=False) == expected
        assert await store.get_chain("anna", "d", NO_LIMIT, drops_oldest=True) is None

    run(law)


def test_find_outputs_looks_up_many_ids_at_once(run: Run) -> None:
    """RSN-2: for an item the first response with it, for a call the only one; of this owner only, and each once."""

    async def law(store: Store) -> None:
        stored = [record(id, text=id.encode()) for id in ("a", "b", "c", "d")]
        await store.save("anna", stored[0], ["rs_1", "rs_2"], ["call_1", "call_0"])
        await store.save("anna", stored[1], ["rs_1"], ["call_2", "call_0"])
        await store.save("anna", stored[2], ["call_9"], [])
        await store.save("bert", stored[3], ["rs_3"], ["call_3"])
        first, second = stored[0].output, stored[1].output
        assert await store.find_outputs("anna", ["rs_1", "rs_2", "rs_3"], [], NO_LIMIT) == [first]
        assert await store.find_outputs("anna", [], ["call_2", "call_1", "call_3", "call_9"], NO_LIMIT) == [
            first,
            second,
        ]
        assert await store.find_outputs("anna", ["rs_2"], ["call_2"], NO_LIMIT) == [first, second]
        assert await store.find_outputs("anna", [], ["call_0"], NO_LIMIT) == []
        assert await store.find_outputs("anna", [], [], NO_LIMIT) == []
        assert await store.find_outputs("anna", [], [f"call_{number}" for number in range(1000)], NO_LIMIT) == [
            first,
            second,
        ]
        assert await store.find_outputs("anna", ["rs_2"], ["call_2"], len(first) + len(second)) == [first, second]
        assert await store.find_outputs("anna", ["rs_2"], ["call_2"], len(first) + len(second) - 1) == [second]
        assert await store.find_outputs("anna", ["rs_2"], ["call_2"], len(second) - 1) == []

    run(law)


def test_item_ids_and_call_ids_are_separate(run: Run) -> None:
    async def law(store: Store) -> None:
        await store.save("anna", record("resp_1"), ["one"], ["two"])
        assert await find_turn_by_item(store, "anna", "two") is None
        assert await find_turn_by_call(store, "anna", "one") is None

    run(law)


def test_deleted_response_leaves_no_ids(run: Run) -> None:
    async def law(store: Store) -> None:
        await store.save("anna", record("resp_1"), ["msg_1"], ["call_1"])
        assert await store.delete("anna", "resp_1")
        assert await store.delete("anna", "resp_1") is False
        assert await find_turn_by_item(store, "anna", "msg_1") is None
        assert await find_turn_by_call(store, "anna", "call_1") is None
        left = await store.stats()
        assert (left.responses, left.owners, left.items, left.oldest, left.newest) == (0, 0, 0, None, None)

    run(law)


# Retention


async def ids_left(store: Store, ids: Sequence[str], owner: str = "anna") -> list[str]:
    return [id for id in ids if await store.get(owner, id)]


def test_prune_deletes_the_oldest_first_in_steps(run: Run) -> None:
    async def law(store: Store) -> None:
        ids = [f"resp_{n}" for n in range(10)]
        for number, id in enumerate(ids):
            await store.save("anna", record(id, at=100 - number), [f"msg_{id}"], [])
        assert await store.prune(before=96, keep=None, batch_size=2) == 2
        assert await ids_left(store, ids) == ids[:8]
        assert await store.prune(before=96, keep=None, batch_size=2) == 2
        assert await store.prune(before=96, keep=None, batch_size=2) == 1  # those at the limit itself remain
        assert await store.prune(before=96, keep=None, batch_size=2) == 0
        assert await ids_left(store, ids) == ids[:5]
        assert await find_turn_by_item(store, "anna", "msg_resp_9") is None
        assert (await store.stats()).items == 5

    run(law)


def test_prune_by_number_deletes_the_oldest_of_all_owners(run: Run) -> None:
    async def law(store: Store) -> None:
        for number in range(10):
            await store.save("anna" if number % 2 else "bert", record(f"resp_{number}", at=number), [], [])
        assert await store.prune(before=None, keep=10) == 0
        assert await store.prune(before=None, keep=7) == 3
        assert await ids_left(store, ["resp_0", "resp_2", "resp_4"], "bert") == ["resp_4"]
        assert await ids_left(store, ["resp_1", "resp_3"]) == ["resp_3"]
        assert await store.prune(before=None, keep=0) == 7

    run(law)


def test_prune_orders_equal_times_by_save_order(run: Run) -> None:
    async def law(store: Store) -> None:
        await save(store, record("a"), record("b"), record("c"))
        assert await store.prune(before=None, keep=1, batch_size=1) == 1
        assert await ids_left(store, ["a", "b", "c"]) == ["b", "c"]

    run(law)


def test_prune_applies_age_and_number_limits_independently(run: Run) -> None:
    async def law(store: Store) -> None:
        await save(store, *(record(f"resp_{n}", at=n) for n in range(6)))
        assert await store.prune(before=2, keep=3) == 3
        assert await store.prune(before=5, keep=3) == 2
        assert await store.prune(before=None, keep=None) == 0

    run(law)


def test_prune_keeps_responses_that_newer_ones_continue(run: Run) -> None:
    async def law(store: Store) -> None:
        await save(store, record("a", at=1), record("b", "a", at=2), record("c", "b", at=50), record("alone", at=3))
        await save(store, record("b", "a", at=1), record("a", at=1), owner="bert")
        await prune_all(store, before=10, keep=None)
        assert await ids_left(store, ["a", "b", "c", "alone"]) == ["a", "b", "c"]
        assert await ids_left(store, ["a", "b"], "bert") == []
        await prune_all(store, before=None, keep=1)
        assert await ids_left(store, ["a", "b", "c"]) == ["a", "b", "c"]
        await prune_all(store, before=51, keep=None)
        assert await ids_left(store, ["a", "b", "c"]) == []

    run(law)


def test_prune_deletes_a_response_that_continues_itself(run: Run) -> None:
    async def law(store: Store) -> None:
        await save(store, record("self", "self", at=1))
        assert await store.prune(before=2, keep=None) == 1

    run(law)


def test_prune_deletes_a_response_whose_continuation_was_deleted(run: Run) -> None:
    async def law(store: Store) -> None:
        await save(store, record("a", at=1), record("b", "a", at=50))
        assert await store.prune(before=10, keep=None) == 0
        assert await store.delete("anna", "b")
        assert await store.prune(before=10, keep=None) == 1

    run(law)


async def prune_all(store: Store, *, before: int | None, keep: int | None, step: int = 3) -> int:
    total = 0
    while count := await store.prune(before=before, keep=keep, batch_size=step):
        assert count <= step
        total += count
    return total


# The whole store


def test_stats_count_the_stored_responses(run: Run) -> None:
    async def law(store: Store) -> None:
        await store.save("anna", record("resp_1", at=5), ["msg_1", "msg_2"], ["call_1"])
        await store.save("anna", record("resp_2", at=3), ["msg_2"], [])
        await store.save("bert", record("resp_1", at=9), ["msg_1"], [])
        stats = await store.stats()
        assert (stats.responses, stats.owners, stats.items, stats.oldest, stats.newest) == (3, 2, 3, 3, 9)
        assert stats.bytes > 0

    run(law)


@pytest.mark.parametrize("place", STORES)
def test_close_finishes_pending_saves_and_refuses_new_calls(place: str) -> None:
    async def law() -> None:
        async with STORE_OPENERS[place]() as store:
            saves = [asyncio.create_task(save(store, record(f"resp_{n}"))) for n in range(50)]
            await asyncio.sleep(0)
            await store.close()
            await asyncio.gather(*saves)
            await store.close()
            with pytest.raises(StorageUnavailable):
                await save(store, record("late"))
            with pytest.raises(StorageUnavailable):
                await store.get("anna", "resp_1")

    asyncio.run(law())


# The same results for any sequence of calls


class Save(Struct, frozen=True):
    owner: str
    record: ResponseRecord
    items: list[str]
    calls: list[str]


class Ask(Struct, frozen=True):
    what: Literal["get", "chain", "with_item", "with_call", "delete"]
    owner: str
    id: str


class Prune(Struct, frozen=True):
    before: int | None
    keep: int | None
    step: int


class Model:
    """The simplest model of a store."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Save] = {}  # in the order in which they were first saved
        self.leads: set[tuple[str, str, str]] = set()  # from an owner's item to a response

    async def ask(self, step: Save | Ask | Prune) -> Any:
        match step:
            case Save():
                self.kept[step.owner, step.record.id] = step
                self.lead(step)
                return None
            case Ask(what="get"):
                stored = self.kept.get((step.owner, step.id))
                return stored and stored.record
            case Ask(what="chain"):
                return self.chain(step.owner, step.id)
            case Ask(what="with_item"):
                having = [each for each in self.of(step.owner) if (step.owner, step.id, each.record.id) in self.leads]
                return turn(having[-1].record) if having else None
            case Ask(what="with_call"):
                calling = [turn(each.record) for each in self.of(step.owner) if step.id in each.calls]
                return calling[0] if len(calling) == 1 else None
            case Ask():
                return self.kept.pop((step.owner, step.id), None) is not None
            case Prune():
                return self.prune(step)

    def lead(self, saved: Save) -> None:
        """An id that we assigned refers to one response only, as long as that exists."""
        owner, id = saved.owner, saved.record.id
        self.leads = {
            lead for lead in self.leads if (lead[0], lead[2]) != (owner, id) and (lead[0], lead[2]) in self.kept
        }
        existing = {item for of, item, _ in self.leads if of == owner}
        self.leads |= {(owner, item, id) for item in saved.items if not (item == OURS and item in existing)}

    def of(self, owner: str) -> list[Save]:
        return [each for each in self.kept.values() if each.owner == owner]

    def chain(self, owner: str, id: str | None) -> bytes | None:
        records: list[ResponseRecord] = []
        while id is not None:
            stored = self.kept.get((owner, id))
            if stored is None or len(records) == len(self.kept):
                return None
            records.insert(0, stored.record)
            id = stored.record.previous
        return join_chain(*records)

    def prune(self, step: Prune) -> int:
        before = len(self.kept)
        by_age = sorted(self.kept.items(), key=lambda each: each[1].record.created_at)
        superfluous = {key for key, _ in by_age[: max(0, before - step.keep)]} if step.keep is not None else set()
        if step.before is not None:
            superfluous |= {key for key, each in by_age if each.record.created_at < step.before}
        while gone := [key for key in superfluous & self.kept.keys() if not self.is_continued(key)]:
            for key in gone:
                del self.kept[key]
        return before - len(self.kept)

    def is_continued(self, key: tuple[str, str]) -> bool:
        return any(other != key and (each.owner, each.record.previous) == key for other, each in self.kept.items())

    def figures(self) -> tuple[Any, ...]:
        moments = [each.record.created_at for each in self.kept.values()]
        items = {(owner, item) for owner, item, response in self.leads if (owner, response) in self.kept}
        owners = {each.owner for each in self.kept.values()}
        return len(self.kept), len(owners), len(items), min(moments, default=None), max(moments, default=None)


async def ask(store: Store, step: Save | Ask | Prune) -> Any:
    match step:
        case Save():
            return await store.save(step.owner, step.record, step.items, step.calls)
        case Ask(what="get" | "delete"):
            return await getattr(store, step.what)(step.owner, step.id)
        case Ask():
            return await {"chain": read_chain, "with_item": find_turn_by_item, "with_call": find_turn_by_call}[
                step.what
            ](store, step.owner, step.id)
        case Prune():
            return await prune_all(store, before=step.before, keep=step.keep, step=step.step)


owners = st.sampled_from(["anna", "bert", "a\0"])
OURS = "msg_" + "6a" * 20
ids = st.sampled_from(["resp_1", "resp_2", "resp_3", "resp_4", "\0", "", "\N{GRINNING FACE}", OURS])
json = st.recursive(
    st.none() | st.integers(-(2**53) - 1, 2**53 + 1) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["z", "a", "\0", "é"]), inner, max_size=3)
    ),
    max_leaves=5,
).map(msgspec.json.encode)
moments = st.integers(0, 9)
records = st.builds(
    ResponseRecord,
    id=ids,
    previous=st.none() | ids,
    created_at=moments,
    status=st.sampled_from(["completed", "incomplete", "odd \0"]),
    head=json,
    input=json,
    output=json,
)
saves = st.builds(Save, owners, records, st.lists(ids, max_size=3), st.lists(ids, max_size=3))
asks = st.builds(Ask, st.sampled_from(["get", "chain", "with_item", "with_call", "delete"]), owners, ids)
prunes = st.builds(Prune, st.none() | moments, st.none() | st.integers(0, 6), st.integers(1, 4))
LARGE = ResponseRecord(
    id="resp_1",
    previous=None,
    created_at=1,
    status="completed",
    head=JSON_BYTES,
    input=b'"' + "é\\u0000".encode() * 150_000 + b'"',
    output=JSON_BYTES,
)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[asyncio.Runner, dict[str, Store]]]:
    """Every store, open during all examples."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> dict[str, Store]:
            return {name: await stack.enter_async_context(place()) for name, place in STORE_OPENERS.items()}

        yield runner, runner.run(enter())
        runner.run(stack.aclose())


@pytest.mark.io
@example(
    [
        Save("anna", LARGE, ["m"], ["c"]),
        Ask("get", "anna", "resp_1"),
        Ask("with_item", "anna", "m"),
        Ask("with_call", "anna", "c"),
    ]
)
@example(
    [
        *(Save("anna", replace(LARGE, id=f"{n}", previous=f"{n - 1}" if n else None), [], []) for n in range(4)),
        Ask("chain", "anna", "3"),
        Ask("delete", "anna", "1"),
        Ask("chain", "anna", "3"),
    ]
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(saves, saves, asks, prunes), max_size=25))
def test_stores_agree_with_a_model_of_responses(
    both: tuple[asyncio.Runner, dict[str, Store]], steps: list[Save | Ask | Prune]
) -> None:
    runner, stores = both
    model = Model()

    async def go_through() -> None:
        for step in steps:
            expected = await model.ask(step)
            assert {name: await ask(store, step) for name, store in stores.items()} == dict.fromkeys(stores, expected)
        for store in stores.values():
            stats = await store.stats()
            assert (stats.responses, stats.owners, stats.items, stats.oldest, stats.newest) == model.figures()

    async def clear() -> None:
        for step in steps:
            if isinstance(step, Save):
                for store in stores.values():
                    await store.delete(step.owner, step.record.id)

    try:
        runner.run(go_through())
    finally:
        runner.run(clear())
