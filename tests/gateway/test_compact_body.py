"""`gateway/compact_body`: the conversation of a request for a compaction, large ones in a worker process."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.gateway.test_compaction import compaction
from tests.gateway.test_compactor import SEAL, PicklingPool
from tests.gateway.test_conversation_steps import says
from tests.store.stores import NO_LIMIT

from antiphon.errors import InvalidValue, MissingField
from antiphon.gateway.client_body import InputLimits
from antiphon.gateway.compact_body import CompactInput, read_compact_body, read_model
from antiphon.gateway.compaction import Conversation, EncodedConversation, decode_conversation, encode_conversation
from antiphon.gateway.history import HistorySource
from antiphon.gateway.worker_pool import LARGE_INPUT

SOURCE = HistorySource(owner="alice", store=None, limit=NO_LIMIT)
LIMITS = InputLimits(max_items=3, max_tools=0)


def read(*items: Any, source: HistorySource = SOURCE, **members: Any) -> CompactInput:
    body = msgspec.json.encode({"model": "m", "input": list(items), **members})
    assert read_model(body) == "m"
    return asyncio.run(read_compact_body(body, source, SEAL, PicklingPool(), LIMITS, keeps_foreign=False))


def test_small_conversation_is_read_in_this_process() -> None:
    assert isinstance(read(says("user")).conversation, Conversation)


def test_large_conversation_stays_encoded() -> None:
    """It is the conversation that this process would read, compactions opened too."""
    sealed = msgspec.to_builtins(compaction([], "sum"))
    members: dict[str, Any] = {"instructions": "Be brief.", "prompt_cache_key": "key"}
    large = read(says("user", "x" * LARGE_INPUT), sealed, says("user"), **members).conversation
    assert isinstance(large, EncodedConversation)
    assert large.size > LARGE_INPUT
    assert encode_conversation(large) is large
    small = decode_conversation(read(says("user", "x"), sealed, says("user"), **members).conversation)
    decoded = decode_conversation(large)
    assert decoded.request.input != small.request.input
    assert replace(decoded.request, input=[]) == replace(small.request, input=[])
    assert decoded.request.input[1:] == small.request.input[1:]  # type: ignore[index]
    assert decoded.sealed_items[1:] == small.sealed_items[1:]


def test_small_request_that_continues_a_large_history_stays_encoded() -> None:
    turns = [msgspec.json.encode([says("user", "earlier")])]
    source = HistorySource(owner="alice", store=None, limit=NO_LIMIT, find_local_turns=lambda _: turns)
    small = read(says("user"), source=source, previous_response_id="resp_1").conversation
    assert isinstance(small, Conversation)
    source = replace(source, max_local_bytes=10)
    large = read(says("user"), source=source, previous_response_id="resp_1").conversation
    assert isinstance(large, EncodedConversation)
    assert decode_conversation(large) == small


@pytest.mark.parametrize("size", [0, LARGE_INPUT])
def test_empty_conversation_is_refused(size: int) -> None:
    with pytest.raises(MissingField, match="nothing to compact"):
        read(instructions="x" * size)


@pytest.mark.parametrize("size", [0, LARGE_INPUT])
def test_too_many_items_are_refused(size: int) -> None:
    items = [says("user", "x")] * LIMITS.max_items
    read(*items, instructions="x" * size)
    with pytest.raises(InvalidValue, match="input: expected at most 3 items in one request, got 4") as refused:
        read(*items, says("user"), instructions="x" * size)
    assert refused.value.param == "input"
