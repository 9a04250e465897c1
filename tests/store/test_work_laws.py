"""What holds of work in the background on every store (API-2): each law on each of them, and all of them against a model."""

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
from tests.store.benches import BENCHES, Bench
from tests.store.conftest import Run
from tests.store.places import chain_of, chained, record, with_call, with_item

from antiphon.errors import StorageUnavailable
from antiphon.store.conversations import ConversationAddition, ConversationEntry, StoredConversation
from antiphon.store.interface import ResponseRecord, Store
from antiphon.store.work import EventsAfter, QueueStats, Work

ODD = [b"", b"\n", b"\0", b"{}\n{}", b"\xff\xfe", b"12 ", b'{"a":\n"\xf0\x9f\x98\x80"}', b" " * 3]
LONG = 600.0  # a lease that does not run out by itself


def queued(id: str, *, at: int = 1_700_000_000, previous: str | None = None) -> ResponseRecord:
    return replace(record(id, previous, at=at), status="queued")


def work(id: str, *, attempt: int = 1, next_event: int = 0, is_cancelled: bool = False, owner: str = "anna") -> Work:
    request = b'{"for":"%s"}' % id.encode()
    return Work(owner=owner, id=id, request=request, attempt=attempt, next_event=next_event, is_cancelled=is_cancelled)


async def enqueue(store: Store, *ids: str, owner: str = "anna") -> None:
    for number, id in enumerate(ids):
        await store.enqueue(owner, queued(id, at=number), [f"msg_{id}"], work(id).request)


async def finish(store: Store, runner: str, id: str, first: int = 0, *events: bytes) -> bool:
    return await store.finish(runner, record(id), [f"msg_{id}"], [], first, events)


# Waiting, and being claimed


def test_what_is_enqueued_is_a_response_and_work(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a", "b")
        assert await store.get("anna", "a") == queued("a", at=0)
        assert await with_item(store, "anna", "msg_a") is not None
        assert await chain_of(store, "anna", "a") == chained(queued("a"))
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[], status="queued")
        assert await store.queue_stats() == QueueStats(waiting=2, running=0, oldest_waiting=0)
        assert await store.claim("one", LONG, 5) == [work("a"), work("b")]
        assert not work("a").has_events
        assert await store.queue_stats() == QueueStats(waiting=0, running=2, oldest_waiting=None)

    run(law)


def test_the_oldest_is_claimed_first_and_no_more_than_wanted(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, *"abcde")
        assert await store.claim("one", LONG, 0) == await store.claim("one", LONG, -1) == []
        assert await store.claim("one", LONG, 2) == [work("a"), work("b")]
        assert await store.queue_stats() == QueueStats(waiting=3, running=2, oldest_waiting=2)
        assert await store.claim("two", LONG, 1) == [work("c")]
        assert await store.claim("one", LONG, 9) == [work("d"), work("e")]
        assert await store.claim("two", LONG, 9) == []

    run(law)


def test_an_id_that_is_there_already_is_left_as_it_is(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
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


def test_work_of_two_owners_never_has_the_same_id(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a")
        with pytest.raises(StorageUnavailable):
            await enqueue(store, "a", owner="bert")
        assert await store.get("bert", "a") is None
        assert await store.claim("one", LONG, 5) == [work("a")]

    run(law)


def test_two_who_claim_at_once_never_get_the_same(run: Run) -> None:
    async def law(bench: Bench) -> None:
        others = [bench.store, await bench.another(), await bench.another()]
        ids = [f"resp_{number:03}" for number in range(90)]
        await asyncio.gather(*(enqueue(bench.store, id) for id in ids))
        claims = [others[number % 3].claim(f"runner {number % 3}", LONG, 7) for number in range(18)]
        claimed = [each.id for got in await asyncio.gather(*claims) for each in got]
        claimed += [
            each.id for each in await bench.store.claim("last", LONG, 100)
        ]  # who has to wait may be passed over
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
def test_two_processes_never_claim_the_same(run: Run) -> None:
    """F-2, of the store: each piece of work is run by one of them."""

    async def law(bench: Bench) -> None:
        ids = [f"resp_{number:03}" for number in range(120)]
        await asyncio.gather(*(enqueue(bench.store, id) for id in ids))
        processes = [child(CLAIMS, bench.place) for _ in range(3)]
        for each in processes:
            assert each.stdin
            each.stdin.write("\n")
            each.stdin.flush()
        claimed = [(await asyncio.to_thread(each.communicate, timeout=60))[0].split() for each in processes]
        assert [each.returncode for each in processes] == [0, 0, 0]
        assert sorted(id for each in claimed for id in each) == ids

    run(law)


# Leases


def test_work_whose_lease_has_run_out_is_claimed_by_another(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a", "b")
        await store.claim("one", 10, 1)
        assert await store.append("one", "a", 0, [b"0", b"1"], "in_progress")
        await bench.let_pass(5)
        assert await store.claim("two", 10, 5) == [work("b")]
        await bench.let_pass(6)
        assert await store.queue_stats() == QueueStats(waiting=1, running=1, oldest_waiting=0)
        [again] = await store.claim("two", 10, 5)
        assert again == work("a", attempt=2, next_event=2)
        assert again.has_events
        assert await store.append("one", "a", 2, [b"late"], "in_progress") is False
        assert await finish(store, "one", "a", 2, b"late") is False
        assert await store.renew("one", 10, ["a"]) == {}
        await store.release("one", ["a"])
        assert await store.claim("one", 10, 5) == []
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[b"0", b"1"], status="in_progress")
        assert await store.append("two", "a", 2, [b"2"], "in_progress")
        assert await finish(store, "two", "a", 3, b"end")

    run(law)


def test_a_lease_that_has_run_out_is_its_runners_own_until_somebody_claims_it(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a")
        await store.claim("one", 10, 1)
        await bench.let_pass(50)
        assert await store.append("one", "a", 0, [b"0"], "in_progress")
        assert await store.renew("one", 10, ["a"]) == {"a": "held"}
        assert await store.claim("two", 10, 1) == []
        await bench.let_pass(50)
        assert await store.claim("one", 10, 1) == [work("a", attempt=2, next_event=1)]
        await bench.let_pass(50)
        assert await finish(store, "one", "a", 1)

    run(law)


def test_a_lease_that_is_renewed_in_time_does_not_run_out(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, *"abc")
        await store.claim("one", 10, 2)
        await store.claim("two", 10, 1)
        for _ in range(3):
            await bench.let_pass(8)
            assert await store.renew("one", 10, ["a", "b", "c", "nowhere"]) == {"a": "held", "b": "held"}
        assert await store.renew("one", 10, []) == {}
        assert [each.id for each in await store.claim("three", 10, 5)] == ["c"]

    run(law)


def test_work_that_is_given_back_is_claimed_at_once(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, *"abc")
        await store.claim("one", LONG, 2)
        await store.claim("two", LONG, 1)
        await store.release("one", ["b", "c", "nowhere"])
        await store.release("one", [])
        assert await store.queue_stats() == QueueStats(waiting=1, running=2, oldest_waiting=1)
        assert await store.append("one", "b", 0, [b"late"], "in_progress") is False
        assert await store.claim("three", LONG, 5) == [work("b", attempt=2)]

    run(law)


# What is said


def test_events_come_back_to_the_byte_after_any_number(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
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


def test_megabytes_are_kept_whole(run: Run) -> None:
    async def law(bench: Bench) -> None:
        large = [os.urandom(1_000_003), b"", b"x" * 500_000]
        await bench.store.enqueue("anna", queued("a"), [], large[0])
        [claimed] = await bench.store.claim("one", LONG, 1)
        assert claimed.request == large[0]
        assert await bench.store.append("one", "a", 0, large, "in_progress")
        assert await bench.store.events_after("anna", "a", 0) == EventsAfter(events=large[1:], status="in_progress")
        assert await bench.store.events_after("anna", "a", -1) == EventsAfter(events=large, status="in_progress")

    run(law)


def test_the_same_events_again_change_nothing(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)
        for _ in range(2):
            assert await store.append("one", "a", 0, [b"0", b"1"], "in_progress")
        assert await store.append("one", "a", 1, [b"1", b"2", b"3"], "in_progress")  # of these the first was there
        assert await store.append("one", "a", 0, [b"0"], "incomplete")
        assert await store.events_after("anna", "a", -1) == EventsAfter(
            events=[b"0", b"1", b"2", b"3"], status="incomplete"
        )
        for _ in range(2):
            assert await finish(store, "one", "a", 3, b"3", b"end")
        assert await store.events_after("anna", "a", 1) == EventsAfter(events=[b"2", b"3", b"end"], status="completed")

    run(law)


def test_a_gap_is_a_mistake_and_nothing_is_kept(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a", "b")
        await store.claim("one", LONG, 2)
        outcomes = await asyncio.gather(
            store.append("one", "a", 1, [b"1"], "in_progress"),
            store.append("one", "b", 0, [b"0"], "in_progress"),
            finish(store, "one", "a", 5, b"end"),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [ValueError, bool, ValueError]
        assert "number 1 on came where number 0 is the next" in str(outcomes[0])
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[], status="queued")
        assert await store.events_after("anna", "b", -1) == EventsAfter(events=[b"0"], status="in_progress")

    run(law)


def test_a_status_may_change_without_an_event(run: Run) -> None:
    async def law(bench: Bench) -> None:
        await enqueue(bench.store, "a")
        await bench.store.claim("one", LONG, 1)
        assert await bench.store.append("one", "a", 0, [], "in_progress")
        assert await bench.store.events_after("anna", "a", -1) == EventsAfter(events=[], status="in_progress")
        found = await bench.store.get("anna", "a")
        assert found == replace(queued("a", at=0), status="in_progress")

    run(law)


def test_what_many_say_at_once_is_all_kept(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
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
            said = await store.events_after("anna", id, -1)
            assert said
            assert said.events == [each for number in range(4) for each in (b"%d" % number, id.encode())] + [b"end"]

    run(law)


def test_what_one_asks_without_waiting_is_kept_in_that_order(run: Run) -> None:
    async def law(bench: Bench) -> None:
        await enqueue(bench.store, "a")
        await bench.store.claim("one", LONG, 1)
        asked = [bench.store.append("one", "a", number, [b"%d" % number], "in_progress") for number in range(20)]
        assert await asyncio.gather(*asked) == [True] * 20
        assert await bench.store.events_after("anna", "a", -1) == EventsAfter(
            events=[b"%d" % n for n in range(20)], status="in_progress"
        )

    run(law)


# Its end


def test_what_is_finished_is_a_response_like_any_other(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)
        done = record("a", says=b"done", at=7)
        assert await store.finish("one", done, ["msg_new"], ["call_1"], 0, [b"only"])
        assert await store.get("anna", "a") == done
        assert await with_item(store, "anna", "msg_a") is None
        assert await with_item(store, "anna", "msg_new") is not None
        found = await with_call(store, "anna", "call_1")
        assert found is not None
        assert found.id == "a"
        assert await store.queue_stats() == QueueStats(waiting=0, running=0, oldest_waiting=None)
        await bench.let_pass(10 * LONG)
        assert await store.claim("two", LONG, 5) == []
        assert await store.renew("one", LONG, ["a"]) == {}
        assert await store.append("one", "a", 1, [b"more"], "in_progress") is False
        assert await store.finish("two", done, [], [], 1, []) is False
        assert await store.cancel("anna", "a", replace(done, status="cancelled")) == "ended"
        assert await store.get("anna", "a") == done

    run(law)


def test_what_it_adds_to_a_conversation_is_kept_with_it(run: Run) -> None:
    """API-4: a turn in the background, and one that is not."""

    async def law(bench: Bench) -> None:
        store = bench.store
        await store.create_conversation("anna", StoredConversation(id="conv", created_at=1, metadata=b"{}"), [])
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)

        def adding(*ids: str, to: str = "conv") -> ConversationAddition:
            return ConversationAddition(
                conversation=to, entries=[ConversationEntry(id=id, item=id.encode()) for id in ids]
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
        assert await with_call(store, "anna", "call_b") is not None

    run(law)


def test_work_that_waits_is_cancelled_at_once(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a", "b")
        cancelled = replace(queued("a", at=0), status="cancelled", head=b'{"now":"cancelled"}')
        assert await store.cancel("bert", "a", cancelled) == "unknown"
        assert await store.cancel("anna", "nowhere", cancelled) == "unknown"
        assert await store.cancel("anna", "a", cancelled) == "cancelled"
        assert await store.get("anna", "a") == cancelled
        assert await with_item(store, "anna", "msg_a") is not None
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[], status="cancelled")
        assert await store.cancel("anna", "a", cancelled) == "ended"
        assert await store.claim("one", LONG, 5) == [work("b")]
        await store.save("anna", record("never"), [], [])
        assert await store.cancel("anna", "never", cancelled) == "ended"

    run(law)


def test_work_that_runs_is_asked_to_end(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, "a")
        await store.claim("one", 10, 1)
        cancelled = replace(queued("a"), status="cancelled")
        for _ in range(2):
            assert await store.cancel("anna", "a", cancelled) == "requested"
            assert await store.renew("one", 10, ["a"]) == {"a": "cancelled"}
        assert await store.append("one", "a", 0, [b"0"], "in_progress")
        await bench.let_pass(11)
        assert await store.claim("two", 10, 1) == [work("a", attempt=2, next_event=1, is_cancelled=True)]
        assert await store.finish("two", cancelled, [], [], 1, [b"cancelled"])
        assert await store.events_after("anna", "a", -1) == EventsAfter(events=[b"0", b"cancelled"], status="cancelled")

    run(law)


def test_work_that_waits_again_is_over_at_once_only_if_it_has_said_nothing(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
        await enqueue(store, *"abc")
        await store.claim("one", 10, 2)
        assert await store.append("one", "b", 0, [b"0"], "in_progress")
        await bench.let_pass(11)
        outcomes = [await store.cancel("anna", id, replace(queued(id), status="cancelled")) for id in "ab"]
        assert outcomes == ["cancelled", "requested"]
        assert await store.cancel("anna", "c", None) == "requested"
        assert await finish(store, "one", "a", 0) is False  # its lease has ended with the work
        claimed = await store.claim("two", 10, 5)
        assert [(each.id, each.is_cancelled) for each in claimed] == [("b", True), ("c", True)]

    run(law)


def test_of_a_cancellation_and_an_end_one_wins(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store, other = bench.store, await bench.another()
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
                found = await store.get("anna", id)
                assert found
                assert found.status == "completed"

    run(law)


def test_what_is_deleted_takes_its_work_and_its_events_along(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
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


def test_deleting_in_the_middle_of_everything_stops_nobody_for_long(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store, other = bench.store, await bench.another()
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
        found = await store.stats()
        assert (found.responses, found.events) == (0, 0)

    run(law)


def test_what_has_yet_to_be_made_does_not_grow_old(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
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


def test_what_belongs_to_somebody_else_says_nothing(run: Run) -> None:
    async def law(bench: Bench) -> None:
        await enqueue(bench.store, "a")
        assert await bench.store.events_after("bert", "a", -1) is None
        assert await bench.store.events_after("anna", "nowhere", -1) is None
        assert await bench.store.cancel("bert", "a", None) == "unknown"
        assert await bench.store.claim("one", LONG, 1) == [work("a")]

    run(law)


# Changes


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_whoever_waits_is_woken_by_whatever_happens(run: Run, where: str) -> None:
    async def law(bench: Bench) -> None:
        here = bench.store
        there = here if where == "here" else await bench.another()
        await enqueue(there, "a", "b")
        happenings: list[tuple[str | None, Callable[[], Awaitable[object]]]] = [
            (None, lambda: enqueue(there, "c")),
            ("a", lambda: there.append("one", "a", 0, [b"0"], "in_progress")),
            ("a", lambda: there.append("one", "a", 1, [], "odd")),
            ("a", lambda: there.cancel("anna", "a", None)),
            (None, lambda: there.release("one", ["b"])),
            ("a", lambda: finish(there, "one", "a", 1, b"end")),
            ("b", lambda: there.cancel("anna", "b", queued("b"))),
            ("c", lambda: there.delete("anna", "c")),
        ]
        await there.claim("one", LONG, 2)
        for id, happens in happenings:
            moment = here.change_counter
            await happens()
            await woken(here, id, moment)

    run(law)


async def woken(store: Store, id: str | None, moment: int) -> None:
    """Waits for a change since a moment; several times if need be, for a store may return early."""
    async with asyncio.timeout(60):
        while store.change_counter == moment:
            await store.wait_for_change(id, 600, moment)


def test_what_happened_since_a_moment_is_not_missed(run: Run) -> None:
    async def law(bench: Bench) -> None:
        await enqueue(bench.store, "a")
        await bench.store.claim("one", LONG, 1)
        moment = bench.store.change_counter
        await bench.store.append("one", "a", 0, [b"0"], "in_progress")
        waiting = asyncio.create_task(bench.store.wait_for_change("a", 600, moment))
        await asyncio.sleep(0)
        assert waiting.done()
        await bench.store.wait_for_change("a", 0.01, bench.store.change_counter)

    run(law)


def test_whoever_waits_when_the_store_is_closed_waits_no_longer(run: Run) -> None:
    async def law(bench: Bench) -> None:
        other = await bench.another()
        waiting = [asyncio.create_task(other.wait_for_change(id, 1000)) for id in ("a", None)]
        await asyncio.sleep(0)
        await other.close()
        async with asyncio.timeout(60):
            await asyncio.gather(*waiting)
        with pytest.raises(StorageUnavailable):
            await other.wait_for_change("a", 1)

    run(law)


def test_whoever_leaves_while_waiting_leaves_nothing_behind(run: Run) -> None:
    async def law(bench: Bench) -> None:
        waiting = [asyncio.create_task(bench.store.wait_for_change("a", 1000)) for _ in range(3)]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        await enqueue(bench.store, "a")
        assert await bench.store.claim("one", LONG, 1) == [work("a")]

    run(law)


def test_one_who_left_before_it_was_kept_has_others_told_all_the_same(run: Run) -> None:
    async def law(bench: Bench) -> None:
        store = bench.store
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


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_tail_hears_every_event_once_and_in_order(run: Run, where: str) -> None:
    """API-2: stored and live joined without gap or repeat, from any event on, also by another replica."""

    async def law(bench: Bench) -> None:
        store = bench.store
        heard_by = store if where == "here" else await bench.another()
        await enqueue(store, "a")
        await store.claim("one", LONG, 1)

        async def tail(after: int) -> list[bytes]:
            heard: list[bytes] = []
            while True:
                moment = heard_by.change_counter
                said = await heard_by.events_after("anna", "a", after + len(heard))
                assert said
                heard += said.events
                if said.status == "completed":
                    return heard
                await heard_by.wait_for_change("a", 600, moment)

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
            for heard, after in zip(
                await asyncio.gather(*tails), (-1, 0, 17, 59, -2, 3, 5, 18, 19, 20, 40, 47), strict=True
            ):
                assert heard == every[max(after, -1) + 1 :] or after == -2

    run(law)


# Bad days


HEAD = """
import asyncio, os, sys
from pathlib import Path
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite.store import SqliteStore
from tests.store.places import record

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


def child(code: str, place: str) -> subprocess.Popen[str]:
    repo = Path(__file__).resolve().parents[2]
    program = HEAD + textwrap.dedent(code) + "\nasyncio.run(main())\n"
    environ = os.environ | {"PYTHONPATH": f"{repo / 'src'}{os.pathsep}{repo}"}
    command = [sys.executable, "-c", program, place]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)


@pytest.mark.io
def test_what_was_acknowledged_survives_kill_9_and_is_taken_up_by_another(run: Run) -> None:
    """docs/errors.md, "kill -9 with background work queued and running"."""

    async def law(bench: Bench) -> None:
        ids = [f"resp_{number}" for number in range(8)]
        await enqueue(bench.store, *ids)
        process = child(APPENDS_FOR_EVER, bench.place)
        assert process.stdout
        lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(120)]
        process.kill()
        rest, _ = await asyncio.to_thread(process.communicate, timeout=30)
        lines += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        acknowledged = dict(line.split() for line in lines)  # the last of each
        assert acknowledged.keys() == set(ids)
        await bench.let_pass(601)
        claimed = {each.id: each for each in await bench.store.claim("heir", LONG, 20)}
        for id in ids:
            said = await bench.store.events_after("anna", id, -1)
            assert said
            assert len(said.events) >= int(acknowledged[id])
            assert said.events == [b"%d" % number for number in range(len(said.events))]
            assert claimed[id] == work(id, attempt=2, next_event=len(said.events))
            assert await finish(bench.store, "heir", id, len(said.events), b"end")

    run(law)


# The same, whatever is asked in whatever order


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
    """What comes next, or some of what was said before and what comes next."""

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
    """Work as plain as can be."""

    def __init__(self) -> None:
        self.pieces: dict[str, Piece] = {}  # in the order in which they came

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


async def ask(bench: Bench, step: Step, before: Sequence[bytes]) -> Any:
    """`before` is what the response of this step has said so far."""
    store = bench.store
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
            return await bench.let_pass(step.seconds)
        case Prune():
            return await store.prune(before=2, keep=None)


ids = st.sampled_from(["a", "b", "c", "\0", "\N{GRINNING FACE}"])
runners = st.sampled_from(["one", "two", "three\0"])
# No sum of what passes is near a lease: real time passes too.
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
@given(steps)
def test_all_stores_do_the_same_work(both: tuple[asyncio.Runner, dict[str, Bench]], steps: list[Step]) -> None:
    runner, benches = both
    model = Model()

    async def go_through() -> None:
        for step in steps:
            before = list(model.said_by(getattr(step, "id", "")))
            expected = model.ask(step)
            answers = {name: await ask(bench, step, before) for name, bench in benches.items()}
            assert answers == dict.fromkeys(benches, expected)
        for bench in benches.values():
            found = await bench.store.stats()
            assert (await bench.store.queue_stats(), found.responses, found.events) == model.figures()

    async def clear() -> None:
        for bench in benches.values():
            for id in model.pieces:
                await bench.store.delete("anna", id)

    try:
        runner.run(go_through())
    finally:
        runner.run(clear())
