"""Laws of background work on every store (API-2): each law on each store, and all of them against a model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from tests.store.conftest import Run
from tests.store.store_setups import STORE_SETUPS, StoreSetup
from tests.store.stores import find_turn_by_call, find_turn_by_item, join_chain, read_chain, record

from antiphon.errors import StorageUnavailable
from antiphon.store.conversations import ConversationAddition, ConversationEntry, StoredConversation
from antiphon.store.interface import ResponseRecord, Store
from antiphon.store.work import EventsAfter, QueueStats, Work

ODD = [b"", b"\n", b"\0", b"{}\n{}", b"\xff\xfe", b"12 ", b'{"a":\n"\xf0\x9f\x98\x80"}', b" " * 3]
LONG = 600.0  # a lease that does not run out by itself


def queued(id: str, *, at: int = 1_700_000_000, previous: str | None = None) -> ResponseRecord:
    return replace(record(id, previous, at=at), status="queued")


def work(id: str, *, attempt: int = 1, next_event: int = 0, is_cancelled: bool = False, owner: str = "anna") -> Work:
    return Work(
        owner=owner,
        id=id,
        request=b'{"for":"%s"}' % id.encode(),
        head=record(id).head,
        input=record(id).input,
        attempt=attempt,
        next_event=next_event,
        is_cancelled=is_cancelled,
    )


async def enqueue(store: Store, *ids: str, owner: str = "anna") -> None:
    for number, id in enumerate(ids):
        await store.enqueue(owner, queued(id, at=number), [f"msg_{id}"], work(id).request)


async def finish(store: Store, runner: str, id: str, first: int = 0, *events: bytes) -> bool:
    return await store.finish(runner, record(id), [f"msg_{id}"], [], first, events)


# Queueing and claiming


def test_enqueue_stores_a_response_and_work(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a", "b")
        assert await store.get("anna", "a") == queued("a", at=0)
        assert await find_turn_by_item(store, "anna", "msg_a") is not None
        assert await read_chain(store, "anna", "a") == join_chain(queued("a"))
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[], status="queued")
        assert await store.queue_stats() == QueueStats(waiting=2, running=0, oldest_waiting=0)
        assert await store.claim("one", LONG, 5) == [work("a"), work("b")]
        assert work("a").next_event == 0
        assert await store.queue_stats() == QueueStats(waiting=0, running=2, oldest_waiting=None)

    run(law)


def test_claim_returns_the_oldest_work_up_to_the_limit(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, *"abcde")
        assert await store.claim("one", LONG, 0) == await store.claim("one", LONG, -1) == []
        assert await store.claim("one", LONG, 2) == [work("a"), work("b")]
        assert await store.queue_stats() == QueueStats(waiting=3, running=2, oldest_waiting=2)
        assert await store.claim("two", LONG, 1) == [work("c")]
        assert await store.claim("one", LONG, 9) == [work("d"), work("e")]
        assert await store.claim("two", LONG, 9) == []

    run(law)


def test_claim_does_not_change_the_status(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, *"abcd")
        await store.claim("one", 10, 3)
        await store.append("one", "b", 0, [b"0"], "started")
        await store.cancel("anna", "c", None)
        await setup.advance_time(50)
        assert await store.claim("two", LONG, 9) == [
            work("a", attempt=2),
            work("b", attempt=2, next_event=1),
            work("c", attempt=2, is_cancelled=True),
            work("d"),
        ]
        statuses = []
        for id in "abcd":
            stored = await store.get("anna", id)
            assert stored is not None
            statuses.append(stored.status)
        assert statuses == ["queued", "started", "queued", "queued"]

    run(law)


def test_claim_omits_the_contents_of_known_work(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, *"abc")
        known = replace(work("b"), request=b"", head=b"", input=b"")
        assert await store.claim("one", 10, 9, prepared_ids=["b", "other"]) == [work("a"), known, work("c")]
        await setup.advance_time(50)
        assert await store.claim("two", LONG, 9) == [work(id, attempt=2) for id in "abc"]

    run(law)


def test_finish_keeps_the_input_as_it_was_queued(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)
        assert await store.finish("one", replace(record("a"), input=b"[1]"), ["msg_new"], [], 0, [])
        assert await store.get("anna", "a") == record("a")
        assert await store.find_items("anna", ["msg_a", "msg_new"]) == dict.fromkeys(["msg_a", "msg_new"], 1)

    run(law)


def test_enqueueing_an_existing_id_changes_nothing(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.save("anna", record("saved"), [], [])
        assert await store.claim("one", LONG, 1) == [work("a")]
        await enqueue(store, "a", "saved")
        assert await store.claim("two", LONG, 5) == []
        assert await finish(store, "one", "a", 0, b"end")
        await enqueue(store, "a")
        assert await store.get("anna", "a") == record("a")
        assert await store.get("anna", "saved") == record("saved")
        assert await store.claim("two", LONG, 5) == []

    run(law)


def test_enqueueing_an_id_of_another_owner_is_refused(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        with pytest.raises(StorageUnavailable):
            await enqueue(store, "a", owner="bert")
        assert await store.get("bert", "a") is None
        assert await store.claim("one", LONG, 5) == [work("a")]

    run(law)


def test_concurrent_claims_never_return_the_same_work(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        others = [setup.store, await setup.open_another(), await setup.open_another()]
        ids = [f"resp_{number:03}" for number in range(90)]
        await asyncio.gather(*(enqueue(setup.store, id) for id in ids))
        claims = [others[number % 3].claim(f"runner {number % 3}", LONG, 7) for number in range(18)]
        claimed = [each.id for got in await asyncio.gather(*claims) for each in got]
        claimed += [each.id for each in await setup.store.claim("last", LONG, 100)]  # a locked row may be skipped
        assert sorted(claimed) == ids

    run(law)


CLAIMS = """
    async def go():
        input()
        claimed = []
        while got := await store.claim(f"runner {os.getpid()}", 600, 3):
            claimed += [work.id for work in got]
        print(*claimed)
"""


@pytest.mark.io
def test_claims_of_two_processes_never_overlap(run: Run) -> None:
    """F-2, of the store: each job is run by one of them."""

    async def law(setup: StoreSetup) -> None:
        ids = [f"resp_{number:03}" for number in range(120)]
        await asyncio.gather(*(enqueue(setup.store, id) for id in ids))
        processes = [child(CLAIMS, setup.location) for _ in range(3)]
        for each in processes:
            assert each.stdin
            each.stdin.write("\n")
            each.stdin.flush()
        claimed = [(await asyncio.to_thread(each.communicate, timeout=60))[0].split() for each in processes]
        assert [each.returncode for each in processes] == [0, 0, 0]
        assert sorted(id for each in claimed for id in each) == ids

    run(law)


# Leases


def test_expired_lease_is_claimed_by_another_runner(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a", "b")
        await store.claim("one", 10, 1)
        assert await store.append("one", "a", 0, [b"0", b"1"], "in_progress")
        await setup.advance_time(5)
        assert await store.claim("two", 10, 5) == [work("b")]
        await setup.advance_time(6)
        assert await store.queue_stats() == QueueStats(waiting=1, running=1, oldest_waiting=0)
        [again] = await store.claim("two", 10, 5)
        assert again == work("a", attempt=2, next_event=2)
        assert again.next_event > 0
        assert await store.append("one", "a", 2, [b"late"], "in_progress") is False
        assert await finish(store, "one", "a", 2, b"late") is False
        assert await store.renew("one", 10, ["a"]) == {}
        await store.release("one", ["a"])
        assert await store.claim("one", 10, 5) == []
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[b"0", b"1"], status="in_progress")
        assert await store.append("two", "a", 2, [b"2"], "in_progress")
        assert await finish(store, "two", "a", 3, b"end")

    run(law)


def test_expired_lease_stays_with_its_runner_until_claimed(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.claim("one", 10, 1)
        await setup.advance_time(50)
        assert await store.append("one", "a", 0, [b"0"], "in_progress")
        assert await store.renew("one", 10, ["a"]) == {"a": "held"}
        assert await store.claim("two", 10, 1) == []
        await setup.advance_time(50)
        assert await store.claim("one", 10, 1) == [work("a", attempt=2, next_event=1)]
        await setup.advance_time(50)
        assert await finish(store, "one", "a", 1)

    run(law)


def test_renewed_lease_does_not_expire(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, *"abc")
        await store.claim("one", 10, 2)
        await store.claim("two", 10, 1)
        for _ in range(3):
            await setup.advance_time(8)
            assert await store.renew("one", 10, ["a", "b", "c", "nowhere"]) == {"a": "held", "b": "held"}
        assert await store.renew("one", 10, []) == {}
        assert [each.id for each in await store.claim("three", 10, 5)] == ["c"]

    run(law)


def test_released_work_can_be_claimed_at_once(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, *"abc")
        await store.claim("one", LONG, 2)
        await store.claim("two", LONG, 1)
        await store.release("one", ["b", "c", "nowhere"])
        await store.release("one", [])
        assert await store.queue_stats() == QueueStats(waiting=1, running=2, oldest_waiting=1)
        assert await store.append("one", "b", 0, [b"late"], "in_progress") is False
        assert await store.claim("three", LONG, 5) == [work("b", attempt=2)]

    run(law)


# Events


def test_events_are_read_byte_by_byte_after_any_number(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)
        assert await store.append("one", "a", 0, ODD[:3], "in_progress")
        assert await store.append("one", "a", 3, ODD[3:4], "in_progress")
        assert await store.append("one", "a", 4, ODD[4:], "in_progress")
        for after in range(-1, len(ODD) + 2):
            assert await store.events_after("anna", "a", after) == EventsAfter(
                events=ODD[after + 1 :], status="in_progress"
            )
        assert await store.events_after("anna", "a", -(2**70)) == EventsAfter(events=ODD, status="in_progress")
        assert await store.events_after("anna", "a", 2**70) == EventsAfter(events=[], status="in_progress")
        assert await finish(store, "one", "a", len(ODD), b"end")
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[*ODD, b"end"], status="completed")
        assert (await store.stats()).events == len(ODD) + 1

    run(law)


def test_large_requests_and_events_are_stored_whole(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        large = [os.urandom(1_000_003), b"", b"x" * 500_000]
        await setup.store.enqueue("anna", queued("a"), [], large[0])
        [claimed] = await setup.store.claim("one", LONG, 1)
        assert claimed.request == large[0]
        assert await setup.store.append("one", "a", 0, large, "in_progress")
        assert await setup.store.events_after("anna", "a", 0) == EventsAfter(events=large[1:], status="in_progress")
        assert await setup.store.events_after("anna", "a", -1) == EventsAfter(events=large, status="in_progress")

    run(law)


def test_events_are_read_up_to_a_limit_of_bytes(run: Run) -> None:
    """Whole batches, at least one; nothing is repeated or omitted."""
    events = [b"%d" % number * 10 for number in range(6)]

    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)
        for first in (0, 2, 4):  # batches of 20 bytes
            assert await store.append("one", "a", first, events[first : first + 2], "in_progress")
        for limit, count in ((1, 2), (20, 2), (21, 4), (40, 4), (41, 6), (60, 6)):
            read = await store.events_after("anna", "a", -1, limit)
            assert read == EventsAfter(events=events[:count], status="in_progress", has_more=True), limit
        assert await store.events_after("anna", "a", -1, 61) == EventsAfter(events=events, status="in_progress")
        assert await store.events_after("anna", "a", 2, 1) == EventsAfter(
            events=events[3:4], status="in_progress", has_more=True
        )
        assert await store.events_after("anna", "a", 5, 1) == EventsAfter(
            events=[], status="in_progress", has_more=True
        )
        assert await store.events_after("anna", "a", 6, 1) is not None

    run(law)


def test_appending_the_same_events_again_changes_nothing(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)
        for _ in range(2):
            assert await store.append("one", "a", 0, [b"0", b"1"], "in_progress")
        assert await store.append(
            "one", "a", 1, [b"1", b"2", b"3"], "in_progress"
        )  # the first of these was there already
        assert await store.append("one", "a", 0, [b"0"], "incomplete")
        assert await store.events_after("anna", "a", -1) == EventsAfter(
            events=[b"0", b"1", b"2", b"3"], status="incomplete"
        )
        for _ in range(2):
            assert await finish(store, "one", "a", 3, b"3", b"end")
        assert await store.events_after("anna", "a", 1) == EventsAfter(events=[b"2", b"3", b"end"], status="completed")

    run(law)


def test_append_with_a_gap_raises_and_stores_nothing(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a", "b")
        await store.claim("one", LONG, 2)
        outcomes = await asyncio.gather(
            store.append("one", "a", 1, [b"1"], "in_progress"),
            store.append("one", "b", 0, [b"0"], "in_progress"),
            finish(store, "one", "a", 5, b"end"),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [ValueError, bool, ValueError]
        assert "expected number 0, got number 1" in str(outcomes[0])
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[], status="queued")
        assert await store.events_after("anna", "b", -1) == EventsAfter(events=[b"0"], status="in_progress")

    run(law)


def test_append_can_change_the_status_without_events(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        await enqueue(setup.store, "a")
        await setup.store.claim("one", LONG, 1)
        assert await setup.store.append("one", "a", 0, [], "in_progress")
        assert await setup.store.events_after("anna", "a", -1) == EventsAfter(events=[], status="in_progress")
        stored = await setup.store.get("anna", "a")
        assert stored == replace(queued("a", at=0), status="in_progress")

    run(law)


def test_concurrent_appends_are_all_stored(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        ids = [f"resp_{number:03}" for number in range(80)]
        await asyncio.gather(*(enqueue(store, id) for id in ids))
        assert len(await store.claim("one", LONG, 100)) == 80

        async def say(id: str) -> None:
            for number in range(4):
                assert await store.append("one", id, number * 2, [b"%d" % number, id.encode()], f"at {number}")
            assert await finish(store, "one", id, 8, b"end")

        renewals = [store.renew("one", LONG, ids[::-1]) for _ in range(10)]
        await asyncio.gather(*map(say, ids), *renewals, *(store.append("two", id, 0, [b"not mine"], "") for id in ids))
        for id in ids:
            log = await store.events_after("anna", id, -1)
            assert log
            assert log.events == [each for number in range(4) for each in (b"%d" % number, id.encode())] + [b"end"]

    run(law)


def test_appends_without_waiting_keep_their_order(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        await enqueue(setup.store, "a")
        await setup.store.claim("one", LONG, 1)
        operations = [setup.store.append("one", "a", number, [b"%d" % number], "in_progress") for number in range(20)]
        assert await asyncio.gather(*operations) == [True] * 20
        assert await setup.store.events_after("anna", "a", -1) == EventsAfter(
            events=[b"%d" % n for n in range(20)], status="in_progress"
        )

    run(law)


# End


def test_finished_work_is_an_ordinary_response(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)
        done = record("a", text=b"done", at=7)
        assert await store.finish("one", done, ["msg_new"], ["call_1"], 0, [b"only"])
        assert await store.get("anna", "a") == done
        assert await find_turn_by_item(store, "anna", "msg_a") is not None
        assert await find_turn_by_item(store, "anna", "msg_new") is not None
        stored = await find_turn_by_call(store, "anna", "call_1")
        assert stored is not None
        assert stored.id == "a"
        assert await store.queue_stats() == QueueStats(waiting=0, running=0, oldest_waiting=None)
        await setup.advance_time(10 * LONG)
        assert await store.claim("two", LONG, 5) == []
        assert await store.renew("one", LONG, ["a"]) == {}
        assert await store.append("one", "a", 1, [b"more"], "in_progress") is False
        assert await store.finish("two", done, [], [], 1, []) is False
        assert await store.cancel("anna", "a", replace(done, status="cancelled")) == "ended"
        assert await store.get("anna", "a") == done

    run(law)


def test_finish_and_save_append_to_the_conversation(run: Run) -> None:
    """API-4: a background turn, and an ordinary one."""

    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await store.create_conversation("anna", StoredConversation(id="conv", created_at=1, metadata=b"{}"), [])
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)

        def adding(*ids: str, to: str = "conv") -> ConversationAddition:
            return ConversationAddition(
                conversation_id=to, entries=[ConversationEntry(id=id, item=id.encode()) for id in ids]
            )

        assert await store.finish("two", record("a"), [], [], 0, [b"0"], addition=adding("not mine")) is False
        for _ in range(2):
            assert await store.finish("one", record("a"), [], [], 0, [b"0"], addition=adding("in", "out"))
        await store.save("anna", record("b"), ["msg_b"], ["call_b"], addition=adding("next"))
        await store.save("anna", record("c"), [], [], addition=adding("lost", to="deleted"))
        await store.save("bert", record("d"), [], [], addition=adding("foreign"))
        page = await store.list_entries("anna", "conv", after=None, order="asc", limit=1000)
        assert page
        assert [entry.id for entry in page.entries] == ["in", "out", "next"]
        assert [await store.get("anna", id) for id in "abc"] == [record(id) for id in "abc"]
        assert await find_turn_by_call(store, "anna", "call_b") is not None

    run(law)


def test_cancel_of_queued_work_is_immediate(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a", "b")
        cancelled = replace(queued("a", at=0), status="cancelled", head=b'{"now":"cancelled"}')
        assert await store.cancel("bert", "a", cancelled) == "unknown"
        assert await store.cancel("anna", "nowhere", cancelled) == "unknown"
        assert await store.cancel("anna", "a", cancelled) == "cancelled"
        assert await store.get("anna", "a") == cancelled
        assert await find_turn_by_item(store, "anna", "msg_a") is not None
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[], status="cancelled")
        assert await store.cancel("anna", "a", cancelled) == "ended"
        assert await store.claim("one", LONG, 5) == [work("b")]
        await store.save("anna", record("never"), [], [])
        assert await store.cancel("anna", "never", cancelled) == "ended"

    run(law)


def test_cancel_of_running_work_is_requested_from_its_runner(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.claim("one", 10, 1)
        cancelled = replace(queued("a"), status="cancelled")
        for _ in range(2):
            assert await store.cancel("anna", "a", cancelled) == "requested"
            assert await store.renew("one", 10, ["a"]) == {"a": "cancelled"}
        assert await store.append("one", "a", 0, [b"0"], "in_progress")
        await setup.advance_time(11)
        assert await store.claim("two", 10, 1) == [work("a", attempt=2, next_event=1, is_cancelled=True)]
        assert await store.finish("two", cancelled, [], [], 1, [b"cancelled"])
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[b"0", b"cancelled"], status="cancelled")

    run(law)


def test_cancel_of_expired_work_is_immediate_only_without_events(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, *"abc")
        await store.claim("one", 10, 2)
        assert await store.append("one", "b", 0, [b"0"], "in_progress")
        await setup.advance_time(11)
        outcomes = [await store.cancel("anna", id, replace(queued(id), status="cancelled")) for id in "ab"]
        assert outcomes == ["cancelled", "requested"]
        assert await store.cancel("anna", "c", None) == "requested"
        assert await finish(store, "one", "a", 0) is False  # its lease ended with the work
        claimed = await store.claim("two", 10, 5)
        assert [(each.id, each.is_cancelled) for each in claimed] == [("b", True), ("c", True)]

    run(law)


def test_concurrent_cancel_and_finish_have_one_winner(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store, other = setup.store, await setup.open_another()
        for id in [f"resp_{number:02}" for number in range(30)]:
            await enqueue(store, id)
            cancelled = replace(queued(id), status="cancelled")
            claimed, outcome = await asyncio.gather(store.claim("one", LONG, 1), other.cancel("anna", id, cancelled))
            assert (outcome, [each.id for each in claimed]) in [("requested", [id]), ("cancelled", [])]
            if outcome == "requested":
                done, late = await asyncio.gather(
                    finish(store, "one", id, 0, b"end"), other.cancel("anna", id, cancelled)
                )
                assert done
                assert late in ("requested", "ended")
                stored = await store.get("anna", id)
                assert stored
                assert stored.status == "completed"

    run(law)


def test_deleting_a_response_deletes_its_work_and_events(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, *"abc")
        await store.claim("one", LONG, 2)
        assert await store.append("one", "a", 0, [b"0", b"1"], "in_progress")
        assert await finish(store, "one", "b", 0, b"0")
        for id in "abc":
            assert await store.delete("anna", id)
            assert await store.events_after("anna", id, -1) is None
        assert await store.renew("one", LONG, ["a"]) == {}
        assert await store.append("one", "a", 2, [b"2"], "in_progress") is False
        assert await finish(store, "one", "a", 2) is False
        assert await finish(store, "one", "b", 2) is False
        assert await store.cancel("anna", "c", None) == "unknown"
        assert await store.claim("two", LONG, 5) == []
        assert (await store.stats()).events == 0
        await enqueue(store, "a")
        assert await store.claim("two", LONG, 5) == [work("a")]

    run(law)


def test_deleting_during_concurrent_writes_does_not_block(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store, other = setup.store, await setup.open_another()
        ids = [f"resp_{number:02}" for number in range(20)]
        await enqueue(store, *ids)
        await store.claim("one", LONG, 20)

        async def say(id: str) -> None:
            for number in range(5):
                if not await store.append("one", id, number, [b"e"], "in_progress"):
                    return
            await finish(store, "one", id, 5, b"end")

        await asyncio.gather(
            *map(say, ids), *(other.delete("anna", id) for id in ids[::-1]), store.renew("one", LONG, ids)
        )
        stats = await store.stats()
        assert (stats.responses, stats.events) == (0, 0)

    run(law)


def test_prune_keeps_unfinished_work(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, *"abc")
        await store.save("anna", record("next", "a", at=1), [], [])
        await store.claim("one", LONG, 2)
        assert await store.append("one", "a", 0, [b"0"], "in_progress")
        assert await store.prune(before=2**40, keep=0) == 1
        assert await finish(store, "one", "a", 1, b"end")
        assert await store.prune(before=2**40, keep=None) == 1
        assert await store.events_after("anna", "a", -1) is None
        assert (await store.stats()).events == 0
        assert await store.queue_stats() == QueueStats(waiting=1, running=1, oldest_waiting=2)

    run(law)


def test_work_of_another_owner_is_unknown(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        await enqueue(setup.store, "a")
        assert await setup.store.events_after("bert", "a", -1) is None
        assert await setup.store.events_after("anna", "nowhere", -1) is None
        assert await setup.store.cancel("bert", "a", None) == "unknown"
        assert await setup.store.claim("one", LONG, 1) == [work("a")]

    run(law)


# Changes


@pytest.mark.parametrize("where", ["same store", "other store"])
def test_every_change_wakes_its_waiters(run: Run, where: str) -> None:
    async def law(setup: StoreSetup) -> None:
        watched_store = setup.store
        changed_store = watched_store if where == "same store" else await setup.open_another()
        await enqueue(changed_store, "a", "b")
        changes: list[tuple[str | None, Callable[[], Awaitable[object]]]] = [
            (None, lambda: enqueue(changed_store, "c")),
            ("a", lambda: changed_store.append("one", "a", 0, [b"0"], "in_progress")),
            ("a", lambda: changed_store.append("one", "a", 1, [], "odd")),
            ("a", lambda: changed_store.cancel("anna", "a", None)),
            (None, lambda: changed_store.release("one", ["b"])),
            ("a", lambda: finish(changed_store, "one", "a", 1, b"end")),
            ("b", lambda: changed_store.cancel("anna", "b", queued("b"))),
            ("c", lambda: changed_store.delete("anna", "c")),
        ]
        await changed_store.claim("one", LONG, 2)
        for id, make_change in changes:
            counter = watched_store.change_counter
            await make_change()
            await woken(watched_store, id, counter)

    run(law)


async def woken(store: Store, id: str | None, moment: int) -> None:
    """Waits for a change since a moment; several times if necessary, because a store may return early."""
    async with asyncio.timeout(60):
        while store.change_counter == moment:
            await store.wait_for_change(id, 600, moment)


def test_wait_for_change_returns_for_changes_since_the_counter(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        await enqueue(setup.store, "a")
        await setup.store.claim("one", LONG, 1)
        moment = setup.store.change_counter
        await setup.store.append("one", "a", 0, [b"0"], "in_progress")
        waiting = asyncio.create_task(setup.store.wait_for_change("a", 600, moment))
        await asyncio.sleep(0)
        assert waiting.done()
        await setup.store.wait_for_change("a", 0.01, setup.store.change_counter)

    run(law)


def test_close_wakes_all_waiters(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        other = await setup.open_another()
        waiting = [asyncio.create_task(other.wait_for_change(id, 1000)) for id in ("a", None)]
        await asyncio.sleep(0)
        await other.close()
        async with asyncio.timeout(60):
            await asyncio.gather(*waiting)
        with pytest.raises(StorageUnavailable):
            await other.wait_for_change("a", 1)

    run(law)


def test_cancelled_waiters_do_not_affect_later_calls(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        waiting = [asyncio.create_task(setup.store.wait_for_change("a", 1000)) for _ in range(3)]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        await enqueue(setup.store, "a")
        assert await setup.store.claim("one", LONG, 1) == [work("a")]

    run(law)


def test_cancelled_append_still_notifies_waiters(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)
        leaving = asyncio.create_task(store.append("one", "a", 0, [b"0"], "in_progress"))
        await asyncio.sleep(0)
        leaving.cancel()
        moment = store.change_counter
        async with asyncio.timeout(60):
            while await store.events_after("anna", "a", -1) != EventsAfter(events=[b"0"], status="in_progress"):
                await store.wait_for_change("a", 600, moment)
                moment = store.change_counter
        assert leaving.cancelled()

    run(law)


@pytest.mark.parametrize("where", ["same store", "other store"])
def test_tail_reads_every_event_once_and_in_order(run: Run, where: str) -> None:
    """API-2: stored and live events joined without gap or repetition, from any event on, also by another replica."""

    async def law(setup: StoreSetup) -> None:
        store = setup.store
        reader_store = store if where == "same store" else await setup.open_another()
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)

        async def tail(after: int) -> list[bytes]:
            received: list[bytes] = []
            while True:
                moment = reader_store.change_counter
                log = await reader_store.events_after("anna", "a", after + len(received))
                assert log
                received += log.events
                if log.status == "completed":
                    return received
                await reader_store.wait_for_change("a", 600, moment)

        tails = [asyncio.create_task(tail(after)) for after in (-1, 0, 17, 59)]
        number = 0
        for size in (1, 5, 2, 13, 1, 1, 20, 7):
            assert await store.append(
                "one", "a", number, [b"%d" % n for n in range(number, number + size)], "in_progress"
            )
            number += size
            tails.append(asyncio.create_task(tail(number - 3)))
            await asyncio.sleep(0.002 * size)
        assert await finish(store, "one", "a", number, b"%d" % number)
        every = [b"%d" % n for n in range(number + 1)]
        async with asyncio.timeout(60):
            for received, after in zip(
                await asyncio.gather(*tails), (-1, 0, 17, 59, -2, 3, 5, 18, 19, 20, 40, 47), strict=True
            ):
                assert received == every[max(after, -1) + 1 :] or after == -2

    run(law)


# Failures


HEAD = """
import asyncio, os, sys
from pathlib import Path
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite.store import SqliteStore
from tests.store.stores import record

async def main():
    global store
    place = sys.argv[1]
    store = await (PostgresStore.open(place) if "://" in place else SqliteStore.open(Path(place), now=lambda: 1_700_000_000.0))
    await go()
    await store.close()
"""
APPENDS_FOR_EVER = """
    async def lane(id):
        for number in range(1_000_000):
            events = [b"%d" % (2 * number), b"%d" % (2 * number + 1)]
            assert await store.append("child", id, 2 * number, events, "in_progress")
            print(id, 2 * number + 2, flush=True)

    async def go():
        await asyncio.gather(*(lane(work.id) for work in await store.claim("child", 600, 8)))
"""


def child(code: str, location: str) -> subprocess.Popen[str]:
    repo = Path(__file__).resolve().parents[2]
    program = HEAD + textwrap.dedent(code) + "\nasyncio.run(main())\n"
    environ = os.environ | {"PYTHONPATH": f"{repo / 'src'}{os.pathsep}{repo}"}
    command = [sys.executable, "-c", program, location]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)


@pytest.mark.io
def test_acknowledged_events_survive_kill_9_and_work_is_reclaimed(run: Run) -> None:
    """docs/errors.md, "kill -9 with background work queued and running"."""

    async def law(setup: StoreSetup) -> None:
        ids = [f"resp_{number}" for number in range(8)]
        await enqueue(setup.store, *ids)
        with child(APPENDS_FOR_EVER, setup.location) as process:
            assert process.stdout
            lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(120)]
            process.kill()
            rest = await asyncio.to_thread(process.stdout.read)  # `communicate` would lose what is buffered here
        lines += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        acknowledged = dict(line.split() for line in lines)  # the last of each
        assert acknowledged.keys() == set(ids)
        await setup.advance_time(601)
        claimed = {each.id: each for each in await setup.store.claim("heir", LONG, 20)}
        for id in ids:
            log = await setup.store.events_after("anna", id, -1)
            assert log
            assert len(log.events) >= int(acknowledged[id])
            assert log.events == [b"%d" % number for number in range(len(log.events))]
            assert claimed[id] == work(id, attempt=2, next_event=len(log.events))
            assert await finish(setup.store, "heir", id, len(log.events), b"end")

    run(law)


# The same results for any sequence of calls


class Enqueue(Struct, frozen=True):
    id: str


class Claim(Struct, frozen=True):
    runner: str
    lease: float
    limit: int


class Renew(Struct, frozen=True):
    runner: str
    lease: float
    ids: list[str]


class Say(Struct, frozen=True):
    """The next events, or some earlier events followed by the next ones."""

    runner: str
    id: str
    again: int
    events: list[bytes]
    ends: bool


class Release(Struct, frozen=True):
    runner: str
    ids: list[str]


class Cancel(Struct, frozen=True):
    id: str
    with_record: bool


class Hear(Struct, frozen=True):
    id: str
    after: int


class Delete(Struct, frozen=True):
    id: str


class Pass(Struct, frozen=True):
    seconds: float


class Prune(Struct, frozen=True):
    pass


Step = Enqueue | Claim | Renew | Say | Release | Cancel | Hear | Delete | Pass | Prune


class Piece:
    """A response of the model, and its work."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.status = "queued"
        self.attempt = 0
        self.runner: str | None = None
        self.left = 0.0  # of the lease
        self.events: list[bytes] = []
        self.is_cancelled = False
        self.has_ended = False

    @property
    def is_free(self) -> bool:
        return not self.has_ended and (self.runner is None or self.left <= 0)


class Model:
    """The simplest model of background work."""

    def __init__(self) -> None:
        self.pieces: dict[str, Piece] = {}  # in the order of queueing

    def own(self, runner: str, id: str) -> Piece | None:
        piece = self.pieces.get(id)
        return piece if piece and piece.runner == runner and not piece.has_ended else None

    def ask(self, step: Step) -> Any:
        match step:
            case Enqueue():
                self.pieces.setdefault(step.id, Piece(step.id))
                return None
            case Claim():
                return [
                    self.claim(piece, step)
                    for piece in [each for each in self.pieces.values() if each.is_free][: step.limit]
                ]
            case Renew():
                held = [piece for id in dict.fromkeys(step.ids) if (piece := self.own(step.runner, id))]
                for piece in held:
                    piece.left = step.lease
                return {piece.id: "cancelled" if piece.is_cancelled else "held" for piece in held}
            case Say():
                return self.say(step)
            case Release():
                for id in step.ids:
                    if piece := self.own(step.runner, id):
                        piece.runner = None
                return None
            case Cancel():
                return self.cancel(step)
            case Hear():
                piece = self.pieces.get(step.id)
                return piece and EventsAfter(events=piece.events[step.after + 1 :], status=piece.status)
            case Delete():
                return self.pieces.pop(step.id, None) is not None
            case Pass():
                for piece in self.pieces.values():
                    piece.left -= step.seconds
                return None
            case Prune():
                ended = [piece.id for piece in self.pieces.values() if piece.has_ended]
                for id in ended:
                    del self.pieces[id]
                return len(ended)

    def claim(self, piece: Piece, step: Claim) -> Work:
        piece.runner, piece.left, piece.attempt = step.runner, step.lease, piece.attempt + 1
        return work(piece.id, attempt=piece.attempt, next_event=len(piece.events), is_cancelled=piece.is_cancelled)

    def say(self, step: Say) -> bool:
        piece = self.own(step.runner, step.id)
        if piece is None:
            ended = self.pieces.get(step.id)
            return bool(step.ends and ended and ended.has_ended and ended.runner == step.runner)
        piece.events += step.events
        piece.status = "completed" if step.ends else "in_progress"
        piece.has_ended = step.ends
        return True

    def cancel(self, step: Cancel) -> Literal["unknown", "ended", "cancelled", "requested"]:
        piece = self.pieces.get(step.id)
        if piece is None:
            return "unknown"
        if piece.has_ended:
            return "ended"
        piece.is_cancelled = True
        if not (step.with_record and piece.is_free and not piece.events):
            return "requested"
        piece.has_ended, piece.runner, piece.status = True, None, "cancelled"
        return "cancelled"

    def said_by(self, id: str) -> list[bytes]:
        return self.pieces[id].events if id in self.pieces else []

    def figures(self) -> tuple[QueueStats, int, int]:
        waiting = [number for number, piece in enumerate(self.pieces.values()) if piece.is_free]
        running = sum(1 for piece in self.pieces.values() if not piece.is_free and not piece.has_ended)
        queue = QueueStats(waiting=len(waiting), running=running, oldest_waiting=1 if waiting else None)
        return queue, len(self.pieces), sum(len(piece.events) for piece in self.pieces.values())


async def ask(setup: StoreSetup, step: Step, before: Sequence[bytes]) -> Any:
    """`before` are the events of this step's response so far."""
    store = setup.store
    match step:
        case Enqueue():
            return await store.enqueue("anna", queued(step.id, at=1), [], work(step.id).request)
        case Claim():
            return await store.claim(step.runner, step.lease, step.limit)
        case Renew():
            return await store.renew(step.runner, step.lease, step.ids)
        case Say():
            first = max(0, len(before) - step.again)
            events = [*before[first:], *step.events]
            if step.ends:
                return await store.finish(step.runner, record(step.id, at=1), [], [], first, events)
            return await store.append(step.runner, step.id, first, events, "in_progress")
        case Release():
            return await store.release(step.runner, step.ids)
        case Cancel():
            cancelled = replace(queued(step.id, at=1), status="cancelled")
            return await store.cancel("anna", step.id, cancelled if step.with_record else None)
        case Hear():
            return await store.events_after("anna", step.id, step.after)
        case Delete():
            return await store.delete("anna", step.id)
        case Pass():
            return await setup.advance_time(step.seconds)
        case Prune():
            return await store.prune(before=2, keep=None)


ids = st.sampled_from(["a", "b", "c", "\0", "\N{GRINNING FACE}"])
runners = st.sampled_from(["one", "two", "three\0"])
# No sum of the passed times is near a lease: real time passes too.
leases = st.sampled_from([10.0, 100.0])
passes = st.builds(Pass, st.sampled_from([7.0, 60.0]))
some_ids = st.lists(ids, max_size=4)
events = st.lists(st.sampled_from(ODD), max_size=3)
enqueues = st.builds(Enqueue, ids)
claims = st.builds(Claim, runners, leases, st.integers(0, 3))
says = st.builds(Say, runners, ids, st.integers(0, 3), events, st.just(False))
ends = st.builds(Say, runners, ids, st.integers(0, 3), events, st.just(True))
others = st.one_of(
    st.builds(Renew, runners, leases, some_ids),
    st.builds(Release, runners, some_ids),
    st.builds(Cancel, ids, st.booleans()),
    st.builds(Hear, ids, st.integers(-1, 6)),
    st.builds(Delete, ids),
    st.builds(Prune),
)
steps = st.lists(st.one_of(enqueues, claims, says, says, ends, others, passes), max_size=40)


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
@given(steps)
def test_stores_agree_with_a_model_of_work(
    both: tuple[asyncio.Runner, dict[str, StoreSetup]], steps: list[Step]
) -> None:
    runner, benches = both
    model = Model()

    async def go_through() -> None:
        for step in steps:
            before = list(model.said_by(getattr(step, "id", "")))
            expected = model.ask(step)
            answers = {name: await ask(setup, step, before) for name, setup in benches.items()}
            assert answers == dict.fromkeys(benches, expected)
        for setup in benches.values():
            stats = await setup.store.stats()
            assert (await setup.store.queue_stats(), stats.responses, stats.events) == model.figures()

    async def clear() -> None:
        for setup in benches.values():
            for id in model.pieces:
                await setup.store.delete("anna", id)

    try:
        runner.run(go_through())
    finally:
        runner.run(clear())


def test_leases_of_ended_runners_are_released_at_once(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        store = setup.store
        await enqueue(store, "a", "b", "c")
        assert [claimed.id for claimed in await store.claim("run_1", LONG, 2)] == ["a", "b"]
        assert [claimed.id for claimed in await store.claim("run_2", LONG, 1)] == ["c"]
        assert sorted(await store.lease_holders()) == ["run_1", "run_2"]
        assert await finish(store, "run_1", "b")
        await setup.advance_time(-1000.0)  # the clock was set back: the lease would last much longer
        assert await store.claim("run_3", LONG, 3) == []
        assert await store.release_runners(["run_1", "run_9"]) == 1
        assert [claimed.id for claimed in await store.claim("run_3", LONG, 3)] == ["a"]
        assert sorted(await store.lease_holders()) == ["run_2", "run_3"]
        assert await store.release_runners([]) == 0

    run(law)
