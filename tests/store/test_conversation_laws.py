"""What holds of conversations on every store (API-4): each law on each of them, and all of them against a model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from tests.store.benches import BENCHES, Bench
from tests.store.conftest import Run
from tests.store.places import record

from antiphon.store.conversations import ConversationEntry, EntryPage, StoredConversation
from antiphon.store.interface import Excerpt, Store

ODD = ["", "\0", "\N{GRINNING FACE}", "e\N{COMBINING ACUTE ACCENT}", "%", "'; --", "x" * 3000, "\ufeff", "\U0010ffff"]


def conversation(id: str = "conv", metadata: bytes = b"{}") -> StoredConversation:
    return StoredConversation(id=id, created_at=7, metadata=metadata)


def entries(*ids: str, says: bytes = b"") -> list[ConversationEntry]:
    return [ConversationEntry(id=id, item=b'{"id":"%s","says":"%s"}' % (id.encode(), says)) for id in ids]


async def everything(store: Store, id: str = "conv", owner: str = "anna") -> list[str]:
    page = await store.list_entries(owner, id, after=None, order="asc", limit=1000)
    assert page is not None
    assert not page.has_more
    return [entry.id for entry in page.entries]


def test_a_conversation_comes_back_with_its_items_in_order(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        made = conversation(metadata=b'{"topic":"\xf0\x9f\x98\x80", "a" : 1}')
        await store.create_conversation("anna", made, entries("c", "a", "b"))
        assert await store.get_conversation("anna", "conv") == made
        assert await store.list_entries("anna", "conv", after=None, order="asc", limit=1000) == EntryPage(
            entries=entries("c", "a", "b"), has_more=False
        )
        assert await store.get_entry("anna", "conv", "a") == entries("a")[0]
        assert (await store.stats()).conversations == 1
        await store.create_conversation("anna", conversation("empty"), [])
        assert await everything(store, "empty") == []

    run(law)


def test_an_id_that_is_there_already_is_left_as_it_is(run: Run) -> None:
    async def law(bench: Bench) -> None:
        await bench.store.create_conversation("anna", conversation(), entries("a"))
        await bench.store.create_conversation("anna", conversation(metadata=b"[]"), entries("b"))
        assert await bench.store.get_conversation("anna", "conv") == conversation()
        assert await everything(bench.store) == ["a"]

    run(law)


def test_metadata_is_replaced(run: Run) -> None:
    async def law(bench: Bench) -> None:
        await bench.store.create_conversation("anna", conversation(), entries("a"))
        changed = conversation(metadata=b'{"new":true}')
        assert await bench.store.update_conversation("anna", "conv", changed.metadata) == changed
        assert await bench.store.get_conversation("anna", "conv") == changed
        assert await bench.store.update_conversation("anna", "nowhere", b"{}") is None

    run(law)


def test_items_are_added_at_the_end(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await store.create_conversation("anna", conversation(), entries("a", "b", "c"))
        assert await store.add_entries("anna", "conv", entries("e", "d"))
        assert await store.add_entries("anna", "conv", [])
        assert await everything(store) == ["a", "b", "c", "e", "d"]
        assert await store.add_entries("anna", "nowhere", entries("x")) is False

    run(law)


def test_an_item_that_is_there_already_moves_to_the_end(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await store.create_conversation("anna", conversation(), entries("a", "b", "a"))
        assert await everything(store) == ["b", "a"]
        assert await store.add_entries("anna", "conv", [*entries("x", "b"), *entries("x", says=b"again")])
        assert await everything(store) == ["a", "b", "x"]
        assert await store.get_entry("anna", "conv", "x") == entries("x", says=b"again")[0]

    run(law)


def test_what_two_add_at_once_is_not_mixed(run: Run) -> None:
    async def law(bench: Bench) -> None:
        stores = [bench.store, await bench.another()]
        await bench.store.create_conversation("anna", conversation(), [])
        turns = [[f"{number}_{part}" for part in range(5)] for number in range(12)]
        added = [stores[number % 2].add_entries("anna", "conv", entries(*turn)) for number, turn in enumerate(turns)]
        assert await asyncio.gather(*added) == [True] * 12
        found = await everything(bench.store)
        assert sorted(found[start : start + 5] for start in range(0, 60, 5)) == sorted(turns)

    run(law)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_follow_each_other(run: Run, order: Literal["asc", "desc"]) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        ids = [f"item_{number}" for number in range(7)]
        await store.create_conversation("anna", conversation(), entries(*ids))
        await store.create_conversation("anna", conversation("other"), entries(*ids))
        for size in (1, 3, 6, 7, 8):
            found: list[str] = []
            after = None
            while True:
                page = await store.list_entries("anna", "conv", after=after, order=order, limit=size)
                assert page
                assert len(page.entries) <= size
                found += [entry.id for entry in page.entries]
                if not page.has_more:
                    break
                after = found[-1]
            assert found == (ids if order == "asc" else ids[::-1])
        assert await store.list_entries("anna", "conv", after=None, order=order, limit=0) == EntryPage(
            entries=[], has_more=True
        )
        assert await store.list_entries("anna", "conv", after="nowhere", order=order, limit=2) is None
        assert await store.list_entries("anna", "nowhere", after=None, order=order, limit=2) is None
        assert await store.list_entries("anna", "nowhere", after="item_1", order=order, limit=2) is None
        last = ids[-1] if order == "asc" else ids[0]
        assert await store.list_entries("anna", "conv", after=last, order=order, limit=1000) == EntryPage(
            entries=[], has_more=False
        )

    run(law)


def test_the_newest_items_are_read_up_to_a_limit(run: Run) -> None:
    """Each limit, to the byte: an item counts a comma as well. What is left out is counted."""

    async def law(bench: Bench) -> None:
        store = bench.store
        kept = [*entries("a", says=b"xxx"), *entries("b"), *entries("c", says=b"x" * 9)]
        await store.create_conversation("anna", conversation(), kept)
        sizes = [len(entry.item) + 1 for entry in kept]
        for limit in range(sum(sizes) + 2):
            fitting = [entry.item for at, entry in enumerate(kept) if sum(sizes[at:]) <= limit]
            wanted = Excerpt(content=b"[%b]" % b",".join(fitting), size=sum(sizes), left_out=3 - len(fitting))
            assert await store.all_entries("anna", "conv", limit, drops_oldest=True) == wanted
            if len(fitting) < 3:
                wanted = replace(wanted, content=b"")
            assert await store.all_entries("anna", "conv", limit, drops_oldest=False) == wanted
        await store.create_conversation("anna", conversation("empty"), [])
        for drops_oldest in (True, False):
            assert await store.all_entries("anna", "empty", 0, drops_oldest=drops_oldest) == Excerpt(
                content=b"[]", size=0
            )
            assert await store.all_entries("anna", "nowhere", 99, drops_oldest=drops_oldest) is None
            assert await store.all_entries("bert", "conv", 99, drops_oldest=drops_oldest) is None

    run(law)


def test_what_is_deleted_is_gone(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await store.save("anna", record("resp_1"), ["a"], [])
        await store.create_conversation("anna", conversation(), entries("a", "b"))
        assert await store.delete_entry("anna", "conv", "a")
        assert await store.delete_entry("anna", "conv", "a") is False
        assert await store.get_entry("anna", "conv", "a") is None
        assert await everything(store) == ["b"]
        assert await store.delete_conversation("anna", "conv")
        assert await store.delete_conversation("anna", "conv") is False
        assert await store.get_conversation("anna", "conv") is None
        assert await store.get_entry("anna", "conv", "b") is None
        assert await store.delete_entry("anna", "conv", "b") is False
        assert await store.list_entries("anna", "conv", after=None, order="asc", limit=1) is None
        assert await store.add_entries("anna", "conv", entries("c")) is False
        assert await store.get("anna", "resp_1") == record("resp_1")
        await store.create_conversation("anna", conversation(), [])
        assert await everything(store) == []

    run(law)


def test_what_belongs_to_somebody_else_does_not_exist(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await store.create_conversation("anna", conversation(), entries("a"))
        assert await store.get_conversation("bert", "conv") is None
        assert await store.update_conversation("bert", "conv", b"[]") is None
        assert await store.delete_conversation("bert", "conv") is False
        assert await store.add_entries("bert", "conv", entries("b")) is False
        assert await store.list_entries("bert", "conv", after=None, order="asc", limit=1000) is None
        assert await store.get_entry("bert", "conv", "a") is None
        assert await store.delete_entry("bert", "conv", "a") is False
        await store.create_conversation("bert", conversation(metadata=b"[]"), entries("z"))
        assert await store.get_conversation("anna", "conv") == conversation()
        assert (await everything(store), await everything(store, owner="bert")) == (["a"], ["z"])

    run(law)


def test_odd_ids_and_large_items_are_like_any_other(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        large = ConversationEntry(id="large", item=bytes(range(256)) * 5_000)
        for id in ODD:
            await store.create_conversation(f"owner {id}", conversation(id), [*entries(*ODD), large])
            assert await everything(store, id, f"owner {id}") == [*ODD, "large"]
            page = await store.list_entries(f"owner {id}", id, after=ODD[-2], order="asc", limit=2)
            assert page == EntryPage(entries=[*entries(ODD[-1]), large], has_more=False)
            assert await store.get_entry(f"owner {id}", id, id) == entries(id)[0]

    run(law)


def test_a_thousand_items_are_read_at_once(run: Run) -> None:
    async def law(bench: Bench) -> None:
        ids = [f"item_{number}" for number in range(1000)]
        await bench.store.create_conversation("anna", conversation(), entries(*ids))
        assert await everything(bench.store) == ids

    run(law)


# The same, whatever is asked in whatever order


class Create(Struct, frozen=True):
    owner: str
    id: str
    items: list[str]


class Add(Struct, frozen=True):
    owner: str
    id: str
    items: list[str]


class List(Struct, frozen=True):
    owner: str
    id: str
    after: str | None
    order: Literal["asc", "desc"]
    limit: int


class Ask(Struct, frozen=True):
    what: Literal["get", "update", "delete"]
    owner: str
    id: str


class AskItem(Struct, frozen=True):
    what: Literal["get", "delete"]
    owner: str
    id: str
    item: str


Step = Create | Add | List | Ask | AskItem


class Model:
    """Conversations as plain as can be."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], tuple[StoredConversation, dict[str, ConversationEntry]]] = {}
        self.number = 0

    def ask(self, step: Step) -> Any:
        self.number += 1
        known = self.kept.get((step.owner, step.id))
        match step:
            case Create():
                if known is None:
                    self.kept[step.owner, step.id] = conversation(step.id), {}
                    self.add(step.owner, step.id, step.items)
                return None
            case Add():
                return known is not None and self.add(step.owner, step.id, step.items)
            case List():
                return known and self.page(list(known[1].values()), step)
            case Ask(what="get"):
                return known and known[0]
            case Ask(what="update"):
                if known is None:
                    return None
                self.kept[step.owner, step.id] = conversation(step.id, b"%d" % self.number), known[1]
                return self.kept[step.owner, step.id][0]
            case Ask():
                return self.kept.pop((step.owner, step.id), None) is not None
            case AskItem(what="get"):
                return known and known[1].get(step.item)
            case AskItem():
                return known is not None and known[1].pop(step.item, None) is not None

    def add(self, owner: str, id: str, items: list[str]) -> bool:
        kept = self.kept[owner, id][1]
        for entry in entries(*items, says=b"%d" % self.number):
            kept.pop(entry.id, None)
            kept[entry.id] = entry
        return True

    def page(self, kept: list[ConversationEntry], step: List) -> EntryPage | None:
        if step.order == "desc":
            kept.reverse()
        if step.after is not None:
            places = [number for number, entry in enumerate(kept) if entry.id == step.after]
            if not places:
                return None
            kept = kept[places[0] + 1 :]
        return EntryPage(entries=kept[: step.limit], has_more=len(kept) > step.limit)


async def ask(store: Store, step: Step, number: int) -> Any:
    match step:
        case Create():
            made = entries(*step.items, says=b"%d" % number)
            return await store.create_conversation(step.owner, conversation(step.id), made)
        case Add():
            return await store.add_entries(step.owner, step.id, entries(*step.items, says=b"%d" % number))
        case List():
            return await store.list_entries(step.owner, step.id, after=step.after, order=step.order, limit=step.limit)
        case Ask(what="get"):
            return await store.get_conversation(step.owner, step.id)
        case Ask(what="update"):
            return await store.update_conversation(step.owner, step.id, b"%d" % number)
        case Ask():
            return await store.delete_conversation(step.owner, step.id)
        case AskItem(what="get"):
            return await store.get_entry(step.owner, step.id, step.item)
        case AskItem():
            return await store.delete_entry(step.owner, step.id, step.item)


owners = st.sampled_from(["anna", "a\0"])
ids = st.sampled_from(["conv", "\N{GRINNING FACE}"])
items = st.sampled_from(["a", "b", "c", "d", "\0", ""])
some = st.lists(items, max_size=4)
creates = st.builds(Create, owners, ids, some)
adds = st.builds(Add, owners, ids, some)
lists = st.builds(
    List, owners, ids, st.none() | items, st.sampled_from(["asc", "desc"]), st.sampled_from([0, 1, 2, 3, 4, 100])
)
asks = st.builds(Ask, st.sampled_from(["get", "update", "delete"]), owners, ids)
item_asks = st.builds(AskItem, st.sampled_from(["get", "delete"]), owners, ids, items)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[asyncio.Runner, dict[str, Bench]]]:
    """Every store, open for as long as the examples take."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> dict[str, Bench]:
            return {name: await stack.enter_async_context(bench()) for name, bench in BENCHES.items()}

        yield runner, runner.run(enter())
        runner.run(stack.aclose())


@pytest.mark.io
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(creates, adds, adds, lists, asks, item_asks), max_size=30))
def test_all_stores_keep_the_same_conversations(
    both: tuple[asyncio.Runner, dict[str, Bench]], steps: list[Step]
) -> None:
    runner, benches = both
    model = Model()

    async def go_through() -> None:
        for number, step in enumerate(steps, 1):
            expected = model.ask(step)
            answers = {name: await ask(bench.store, step, number) for name, bench in benches.items()}
            assert answers == dict.fromkeys(benches, expected)

    async def clear() -> None:
        for bench in benches.values():
            for owner, id in model.kept:
                await bench.store.delete_conversation(owner, id)

    try:
        runner.run(go_through())
    finally:
        runner.run(clear())
