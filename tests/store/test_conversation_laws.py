"""Laws of conversations on every store (API-4): each law on each store, and all of them against a model."""

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
from tests.store.conftest import Run
from tests.store.store_setups import STORE_SETUPS, StoreSetup
from tests.store.stores import record

from antiphon.store.conversations import ConversationEntry, EntryPage, StoredConversation
from antiphon.store.interface import Excerpt, Store

ODD = ["", "\0", "\N{GRINNING FACE}", "e\N{COMBINING ACUTE ACCENT}", "%", "'; --", "x" * 3000, "\ufeff", "\U0010ffff"]


def conversation(id: str = "conv", metadata: bytes = b"{}") -> StoredConversation:
    return StoredConversation(id=id, created_at=7, metadata=metadata)


def entries(*ids: str, text: bytes = b"") -> list[ConversationEntry]:
    return [ConversationEntry(id=id, item=b'{"id":"%s","says":"%s"}' % (id.encode(), text)) for id in ids]


async def all_ids(store: Store, id: str = "conv", owner: str = "anna") -> list[str]:
    page = await store.list_entries(owner, id, after=None, order="asc", limit=1000)
    assert page is not None
    assert not page.has_more
    return [entry.id for entry in page.entries]


def test_conversation_is_read_with_its_items_in_order(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        made = conversation(metadata=b'{"topic":"\xf0\x9f\x98\x80", "a" : 1}')
        await store.create_conversation("anna", made, entries("c", "a", "b"))
        assert await store.get_conversation("anna", "conv") == made
        assert await store.list_entries("anna", "conv", after=None, order="asc", limit=1000) == EntryPage(
            entries=entries("c", "a", "b"), has_more=False
        )
        assert await store.get_entry("anna", "conv", "a") == entries("a")[0]
        assert (await store.stats()).conversations == 1
        await store.create_conversation("anna", conversation("empty"), [])
        assert await all_ids(store, "empty") == []

    run(law)


def test_creating_an_existing_conversation_changes_nothing(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        await setup.store.create_conversation("anna", conversation(), entries("a"))
        await setup.store.create_conversation("anna", conversation(metadata=b"[]"), entries("b"))
        assert await setup.store.get_conversation("anna", "conv") == conversation()
        assert await all_ids(setup.store) == ["a"]

    run(law)


def test_update_replaces_the_metadata(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        await setup.store.create_conversation("anna", conversation(), entries("a"))
        changed = conversation(metadata=b'{"new":true}')
        assert await setup.store.update_conversation("anna", "conv", changed.metadata) == changed
        assert await setup.store.get_conversation("anna", "conv") == changed
        assert await setup.store.update_conversation("anna", "nowhere", b"{}") is None

    run(law)


def test_added_items_are_appended(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await store.create_conversation("anna", conversation(), entries("a", "b", "c"))
        assert await store.add_entries("anna", "conv", entries("e", "d"))
        assert await store.add_entries("anna", "conv", [])
        assert await all_ids(store) == ["a", "b", "c", "e", "d"]
        assert await store.add_entries("anna", "nowhere", entries("x")) is False

    run(law)


def test_existing_item_moves_to_the_end(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await store.create_conversation("anna", conversation(), entries("a", "b", "a"))
        assert await all_ids(store) == ["b", "a"]
        assert await store.add_entries("anna", "conv", [*entries("x", "b"), *entries("x", text=b"again")])
        assert await all_ids(store) == ["a", "b", "x"]
        assert await store.get_entry("anna", "conv", "x") == entries("x", text=b"again")[0]

    run(law)


def test_concurrent_additions_are_not_interleaved(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        stores = [setup.store, await setup.open_another()]
        await setup.store.create_conversation("anna", conversation(), [])
        turns = [[f"{number}_{part}" for part in range(5)] for number in range(12)]
        added = [stores[number % 2].add_entries("anna", "conv", entries(*turn)) for number, turn in enumerate(turns)]
        assert await asyncio.gather(*added) == [True] * 12
        stored_ids = await all_ids(setup.store)
        assert sorted(stored_ids[start : start + 5] for start in range(0, 60, 5)) == sorted(turns)

    run(law)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_item_pages_are_consecutive(run: Run, order: Literal["asc", "desc"]) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        ids = [f"item_{number}" for number in range(7)]
        await store.create_conversation("anna", conversation(), entries(*ids))
        await store.create_conversation("anna", conversation("other"), entries(*ids))
        for size in (1, 3, 6, 7, 8):
            collected: list[str] = []
            after = None
            while True:
                page = await store.list_entries("anna", "conv", after=after, order=order, limit=size)
                assert page
                assert len(page.entries) <= size
                collected += [entry.id for entry in page.entries]
                if not page.has_more:
                    break
                after = collected[-1]
            assert collected == (ids if order == "asc" else ids[::-1])
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


def test_newest_items_are_read_up_to_a_limit(run: Run) -> None:
    """Each limit, exactly: an item counts its comma as well. Omitted items are counted."""

    async def law(setup: StoreSetup) -> None:
        store = setup.store
        stored = [*entries("a", text=b"xxx"), *entries("b"), *entries("c", text=b"x" * 9)]
        await store.create_conversation("anna", conversation(), stored)
        sizes = [len(entry.item) + 1 for entry in stored]
        for limit in range(sum(sizes) + 2):
            fitting = [entry.item for at, entry in enumerate(stored) if sum(sizes[at:]) <= limit]
            expected = Excerpt(content=b"[%b]" % b",".join(fitting), size=sum(sizes), omitted_count=3 - len(fitting))
            assert await store.read_all_entries("anna", "conv", limit, drops_oldest=True) == expected
            if len(fitting) < 3:
                expected = replace(expected, content=b"")
            assert await store.read_all_entries("anna", "conv", limit, drops_oldest=False) == expected
        await store.create_conversation("anna", conversation("empty"), [])
        for drops_oldest in (True, False):
            assert await store.read_all_entries("anna", "empty", 0, drops_oldest=drops_oldest) == Excerpt(
                content=b"[]", size=0
            )
            assert await store.read_all_entries("anna", "nowhere", 99, drops_oldest=drops_oldest) is None
            assert await store.read_all_entries("bert", "conv", 99, drops_oldest=drops_oldest) is None

    run(law)


def test_deleted_items_and_conversations_are_removed(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await store.save("anna", record("resp_1"), ["a"], [])
        await store.create_conversation("anna", conversation(), entries("a", "b"))
        assert await store.delete_entry("anna", "conv", "a")
        assert await store.delete_entry("anna", "conv", "a") is False
        assert await store.get_entry("anna", "conv", "a") is None
        assert await all_ids(store) == ["b"]
        assert await store.delete_conversation("anna", "conv")
        assert await store.delete_conversation("anna", "conv") is False
        assert await store.get_conversation("anna", "conv") is None
        assert await store.get_entry("anna", "conv", "b") is None
        assert await store.delete_entry("anna", "conv", "b") is False
        assert await store.list_entries("anna", "conv", after=None, order="asc", limit=1) is None
        assert await store.add_entries("anna", "conv", entries("c")) is False
        assert await store.get("anna", "resp_1") == record("resp_1")
        await store.create_conversation("anna", conversation(), [])
        assert await all_ids(store) == []

    run(law)


def test_conversation_of_another_owner_does_not_exist(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
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
        assert (await all_ids(store), await all_ids(store, owner="bert")) == (["a"], ["z"])

    run(law)


def test_odd_ids_and_large_items_are_stored(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        large = ConversationEntry(id="large", item=bytes(range(256)) * 5_000)
        for id in ODD:
            await store.create_conversation(f"owner {id}", conversation(id), [*entries(*ODD), large])
            assert await all_ids(store, id, f"owner {id}") == [*ODD, "large"]
            page = await store.list_entries(f"owner {id}", id, after=ODD[-2], order="asc", limit=2)
            assert page == EntryPage(entries=[*entries(ODD[-1]), large], has_more=False)
            assert await store.get_entry(f"owner {id}", id, id) == entries(id)[0]

    run(law)


def test_thousand_items_are_read_at_once(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        ids = [f"item_{number}" for number in range(1000)]
        await setup.store.create_conversation("anna", conversation(), entries(*ids))
        assert await all_ids(setup.store) == ids

    run(law)


# The same results for any sequence of calls


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
    """The simplest model of conversations."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], tuple[StoredConversation, dict[str, ConversationEntry]]] = {}
        self.number = 0

    def ask(self, step: Step) -> Any:
        self.number += 1
        existing = self.kept.get((step.owner, step.id))
        match step:
            case Create():
                if existing is None:
                    self.kept[step.owner, step.id] = conversation(step.id), {}
                    self.add(step.owner, step.id, step.items)
                return None
            case Add():
                return existing is not None and self.add(step.owner, step.id, step.items)
            case List():
                return existing and self.page(list(existing[1].values()), step)
            case Ask(what="get"):
                return existing and existing[0]
            case Ask(what="update"):
                if existing is None:
                    return None
                self.kept[step.owner, step.id] = conversation(step.id, b"%d" % self.number), existing[1]
                return self.kept[step.owner, step.id][0]
            case Ask():
                return self.kept.pop((step.owner, step.id), None) is not None
            case AskItem(what="get"):
                return existing and existing[1].get(step.item)
            case AskItem():
                return existing is not None and existing[1].pop(step.item, None) is not None

    def add(self, owner: str, id: str, items: list[str]) -> bool:
        stored = self.kept[owner, id][1]
        for entry in entries(*items, text=b"%d" % self.number):
            stored.pop(entry.id, None)
            stored[entry.id] = entry
        return True

    def page(self, stored: list[ConversationEntry], step: List) -> EntryPage | None:
        if step.order == "desc":
            stored.reverse()
        if step.after is not None:
            places = [number for number, entry in enumerate(stored) if entry.id == step.after]
            if not places:
                return None
            stored = stored[places[0] + 1 :]
        return EntryPage(entries=stored[: step.limit], has_more=len(stored) > step.limit)


async def ask(store: Store, step: Step, number: int) -> Any:
    match step:
        case Create():
            made = entries(*step.items, text=b"%d" % number)
            return await store.create_conversation(step.owner, conversation(step.id), made)
        case Add():
            return await store.add_entries(step.owner, step.id, entries(*step.items, text=b"%d" % number))
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
def both() -> Iterator[tuple[asyncio.Runner, dict[str, StoreSetup]]]:
    """Every store, open during all examples."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> dict[str, StoreSetup]:
            return {name: await stack.enter_async_context(setup()) for name, setup in STORE_SETUPS.items()}

        yield runner, runner.run(enter())
        runner.run(stack.aclose())


@pytest.mark.io
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(creates, adds, adds, lists, asks, item_asks), max_size=30))
def test_stores_agree_with_a_model_of_conversations(
    both: tuple[asyncio.Runner, dict[str, StoreSetup]], steps: list[Step]
) -> None:
    runner, benches = both
    model = Model()

    async def go_through() -> None:
        for number, step in enumerate(steps, 1):
            expected = model.ask(step)
            answers = {name: await ask(setup.store, step, number) for name, setup in benches.items()}
            assert answers == dict.fromkeys(benches, expected)

    async def clear() -> None:
        for setup in benches.values():
            for owner, id in model.kept:
                await setup.store.delete_conversation(owner, id)

    try:
        runner.run(go_through())
    finally:
        runner.run(clear())
