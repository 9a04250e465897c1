"""Writes of the background queue in an SQLite file that are frequent, and executed together with others of their
kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw
import msgspec

from antiphon.store.conversations import ConversationAddition
from antiphon.store.event_batches import events_to_append, pack_events
from antiphon.store.sqlite.conversations import append_entries
from antiphon.store.sqlite.file import fetch
from antiphon.store.sqlite.responses import (
    INSERT_RESPONSES,
    INSERT_TURNS,
    RESPONSE_COLUMN_COUNT,
    RESPONSE_VALUES,
    TURN_VALUES,
    IndexKeys,
    Row,
    add_index_keys,
    index_response,
    insert_responses,
    update_responses,
)
from antiphon.store.sqlite.threads import BatchedWrite, insert_rows


class Enqueue(BatchedWrite):
    """Saves a queued response and its work."""

    def __init__(self, row: Row, keys: IndexKeys, request: bytes) -> None:
        self.row = row
        self.keys = keys
        self.request = request

    def __call__(self, cursor: apsw.Cursor) -> None:
        row = self.row
        for (seq,) in fetch(cursor, INSERT_QUEUED_RESPONSE, *row[:RESPONSE_COLUMN_COUNT]):
            cursor.execute(f"{INSERT_TURNS}{TURN_VALUES}", row.turn_values(seq))
            index_response(cursor, row.owner, seq, self.keys)
            insert_rows(cursor, INSERT_WORK, WORK_VALUES, [(seq, row.id)])
            insert_rows(cursor, INSERT_REQUESTS, REQUEST_VALUES, [(seq, self.request)])

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, enqueues: Sequence[Enqueue]) -> list[None]:
        """Saves all in a few statements. It fails if one of the ids exists."""
        first_seq = insert_responses(cursor, [(enqueue.row, enqueue.keys) for enqueue in enqueues])
        numbered = list(enumerate(enqueues, first_seq))
        insert_rows(cursor, INSERT_WORK, WORK_VALUES, [(seq, enqueue.row.id) for seq, enqueue in numbered])
        requests = [(seq, enqueue.request) for seq, enqueue in numbered]
        insert_rows(cursor, INSERT_REQUESTS, REQUEST_VALUES, requests)
        return [None] * len(enqueues)


class Append(BatchedWrite):
    """Appends events to a response."""

    def __init__(self, runner: bytes, id: bytes, first_number: int, events: Sequence[bytes], status: bytes) -> None:
        self.runner = runner
        self.id = id
        self.first_number = first_number
        self.events = events
        self.status = status

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, appends: Sequence[Append]) -> list[bool | Exception]:
        held_work = {
            (work.runner, work.id): work for work in _select_held_work(cursor, {append.id for append in appends})
        }
        batches: list[tuple[int, int, int, bytes, bytes]] = []
        statuses: dict[int, str] = {}
        outcomes: list[bool | Exception] = []
        for append in appends:
            work = held_work.get((append.runner, append.id))
            if work is None:
                outcomes.append(False)
                continue
            try:
                batches += _event_rows(
                    work.seq, work.next_event, events_to_append(append.first_number, append.events, work.next_event)
                )
            except ValueError as error:
                outcomes.append(error)
                continue
            work.next_event = max(work.next_event, append.first_number + len(append.events))
            if append.status != work.status:
                work.status = append.status
                statuses[work.seq] = append.status.hex()
            outcomes.append(True)
        insert_rows(cursor, INSERT_EVENTS, EVENTS_VALUES, batches)
        if batches:
            cursor.execute(SET_NEXT_EVENT, (encode_json([[work.seq, work.next_event] for work in held_work.values()]),))
        if statuses:
            cursor.execute(SET_STATUS, (encode_json(list(statuses.items())),))
        return outcomes


class Finish(BatchedWrite):
    """Saves the last events of a response and the response, and ends its work."""

    def __init__(
        self,
        runner: bytes,
        row: Row,
        keys: IndexKeys,
        first_number: int,
        events: Sequence[bytes],
        addition: ConversationAddition | None,
    ) -> None:
        self.runner = runner
        self.row = row
        self.keys = keys
        self.first_number = first_number
        self.events = events
        self.addition = addition

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, finishes: Sequence[Finish]) -> list[bool | Exception]:
        """Saves all in a few statements."""
        states = {
            (bytes.fromhex(id), bytes.fromhex(runner)): (seq, bytes.fromhex(owner), next_event, bool(has_ended))
            for id, runner, seq, owner, next_event, has_ended in msgspec.json.decode(
                fetch(cursor, SELECT_WORK_TO_FINISH, encode_json([finish.row.id.hex() for finish in finishes]))[0][0]
            )
        }
        outcomes: list[bool | Exception] = []
        ended: list[tuple[int, bytes, Finish]] = []
        batches: list[tuple[int, int, int, bytes, bytes]] = []
        for finish in finishes:
            seq, owner, next_event, has_ended = states.get((finish.row.id, finish.runner), (0, b"", 0, False))
            if seq == 0 or has_ended:
                outcomes.append(has_ended)
                continue
            try:
                new_events = events_to_append(finish.first_number, finish.events, next_event)
            except ValueError as error:
                outcomes.append(error)
                continue
            batches += _event_rows(seq, next_event, new_events)
            ended.append((seq, owner, finish))
            states[finish.row.id, finish.runner] = seq, owner, next_event, True  # for a repeated call in this batch
            outcomes.append(True)
        _end_all(cursor, ended)
        insert_rows(cursor, INSERT_EVENTS, EVENTS_VALUES, batches)
        return outcomes


class _HeldWork:
    """Work that a runner holds, with its next event number and status."""

    def __init__(self, id: str, runner: str, seq: int, next_event: int, status: str) -> None:
        self.id = bytes.fromhex(id)
        self.runner = bytes.fromhex(runner)
        self.seq = seq
        self.next_event = next_event
        self.status = bytes.fromhex(status)


def encode_json(values: object) -> str:
    """Encodes values as one parameter of a statement, for `json_each`."""
    return msgspec.json.encode(values).decode()


def _end_all(cursor: apsw.Cursor, ended: Sequence[tuple[int, bytes, Finish]]) -> None:
    """Saves the responses with these numbers and owners, and ends their work."""
    if not ended:
        return
    seqs = encode_json([seq for seq, _, _ in ended])
    cursor.execute(DELETE_REQUESTS, (seqs,))  # first: what is written next reuses the pages, which are written anyway
    add_index_keys(cursor, [(owner, *key, seq) for seq, owner, finish in ended for key in finish.keys])
    update_responses(cursor, [(seq, finish.row) for seq, _, finish in ended], keeps_input=True)
    cursor.execute(END_WORK, (seqs,))
    for _, owner, finish in ended:
        if finish.addition is not None:
            append_entries(cursor, owner, finish.addition.conversation_id.encode(), finish.addition.entries)


def _select_held_work(cursor: apsw.Cursor, ids: set[bytes]) -> list[_HeldWork]:
    return [
        _HeldWork(*row)
        for row in msgspec.json.decode(fetch(cursor, SELECT_HELD_WORK, encode_json([id.hex() for id in ids]))[0][0])
    ]


def _event_rows(seq: int, first_number: int, events: Sequence[bytes]) -> list[tuple[int, int, int, bytes, bytes]]:
    if not events:
        return []
    batch = pack_events(first_number, events)
    return [(seq, first_number, len(events), batch.sizes, batch.content)]


INSERT_QUEUED_RESPONSE: Final = f"{INSERT_RESPONSES}{RESPONSE_VALUES} ON CONFLICT (owner, id) DO NOTHING RETURNING seq"
INSERT_WORK: Final = "INSERT INTO work (seq, id) VALUES "
WORK_VALUES: Final = "(?, ?)"
INSERT_REQUESTS: Final = "INSERT INTO work_requests (seq, request) VALUES "
REQUEST_VALUES: Final = "(?, ?)"
SELECT_HELD_WORK: Final = """
    SELECT json_group_array(json_array(hex(w.id), hex(runner), w.seq, next_event, hex(status)))
    FROM json_each(?) CROSS JOIN work AS w ON w.id = unhex(value) CROSS JOIN responses AS r ON r.seq = w.seq
    WHERE has_ended = 0 AND runner IS NOT NULL
"""
INSERT_EVENTS: Final = "INSERT INTO events (seq, first, count, sizes, content) VALUES "
EVENTS_VALUES: Final = "(?, ?, ?, ?, ?)"
SET_NEXT_EVENT: Final = "UPDATE work SET next_event = value ->> 1 FROM json_each(?) WHERE seq = value ->> 0"
SET_STATUS: Final = "UPDATE responses SET status = unhex(value ->> 1) FROM json_each(?) WHERE seq = value ->> 0"
SELECT_WORK_TO_FINISH: Final = """
    SELECT json_group_array(json_array(hex(w.id), hex(runner), w.seq, hex(owner), next_event, has_ended))
    FROM json_each(?) CROSS JOIN work AS w ON w.id = unhex(value) CROSS JOIN responses AS r ON r.seq = w.seq
    WHERE runner IS NOT NULL
"""
# `runner` is kept, so that a repeated `finish` can be recognised.
END_WORK: Final = "UPDATE work SET has_ended = 1, held_until = NULL WHERE seq IN (SELECT value FROM json_each(?))"
DELETE_REQUESTS: Final = "DELETE FROM work_requests WHERE seq IN (SELECT value FROM json_each(?))"
