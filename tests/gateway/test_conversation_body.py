"""`gateway/conversation_body`: bodies with items for a conversation, small and large."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from antiphon.errors import ClientFault
from antiphon.gateway.conversation_body import ConversationBody, _read_remotely, read_conversation_body
from antiphon.gateway.history import HistorySource
from antiphon.gateway.ids import new_id, now
from antiphon.gateway.remote_preparation import SourceAnswers
from antiphon.gateway.worker import run_coroutine
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool
from antiphon.protocol.conversation import AddItems, CreateConversation
from antiphon.protocol.stamps import Stamps

pytestmark = pytest.mark.io
USER = {"type": "message", "role": "user", "content": "Hi"}
LARGE = {"type": "message", "role": "user", "content": "x" * (LARGE_INPUT + 1)}
EMPTY = HistorySource(owner="alice", store=None, limit=LARGE_INPUT * 4, max_local_bytes=LARGE_INPUT)


def read(body: dict[str, Any], body_type: Any = CreateConversation) -> ConversationBody:
    async def play() -> ConversationBody:
        workers = WorkerPool(1)
        try:
            content = msgspec.json.encode(body)
            return await read_conversation_body(content, body_type, EMPTY, Stamps(new_id, now), workers)
        finally:
            await workers.close()

    return asyncio.run(play())


def texts(body: ConversationBody) -> list[str]:
    return [msgspec.json.decode(entry.item)["content"] for entry in body.entries]


@pytest.mark.parametrize("item", [USER, LARGE])
def test_body_is_read_as_metadata_and_entries(item: dict[str, Any]) -> None:
    body = read({"items": [item], "metadata": {"a": "b"}})
    assert texts(body) == [item["content"]]
    assert body.metadata == b'{"a":"b"}'
    assert body.entries[0].id.startswith("msg_")


def test_body_without_items_or_metadata_is_empty() -> None:
    assert read({}) == (b"{}", [])
    assert read({"items": [USER]}, AddItems).metadata == b"{}"


@pytest.mark.parametrize("items", [[USER, {"type": "compaction_trigger"}], [LARGE, {"type": "compaction_trigger"}]])
def test_body_with_a_compaction_trigger_is_refused(items: list[Any]) -> None:
    with pytest.raises(ClientFault, match=r"items\[1\]: a compaction_trigger is only allowed"):
        read({"items": items})


def test_worker_reads_a_body_with_the_history_source_of_the_gateway() -> None:
    def ask(name: str, *arguments: Any, **options: Any) -> Any:
        return asyncio.run(SourceAnswers(lambda: EMPTY).answer(name, *arguments, **options))

    body = msgspec.json.encode({"items": [{"type": "item_reference", "id": "msg_1"}]})
    with pytest.raises(ClientFault, match="no item with the id 'msg_1'"):
        run_coroutine(_read_remotely(ask, body, AddItems))
