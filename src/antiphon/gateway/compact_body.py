"""Reads the body of a request for a compaction: the conversation that is compacted (CMP-1).

A body or history above `LARGE_INPUT` is read in a worker process, and its conversation stays encoded.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.errors import MissingField
from antiphon.gateway.client_body import InputLimits, check_input
from antiphon.gateway.compaction import CompactionOpener, Conversation, EncodedConversation, encode_conversation
from antiphon.gateway.history import HistorySource, resolve_history
from antiphon.gateway.remote_preparation import Ask, SourceAnswers, remote_history_source
from antiphon.gateway.sealing import Seal
from antiphon.gateway.stored_items import LargeHistory
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


class CompactInput(Struct, frozen=True, kw_only=True):
    """The conversation of a request, and the losses of resolving it."""

    conversation: Conversation | EncodedConversation
    losses: Losses


def read_model(body: bytes) -> str | None:
    """The model of a request, whose whole body is checked."""
    return codec.decode_compact_request(body).model


async def read_compact_body(
    body: bytes,
    source: HistorySource,
    seal: Seal,
    workers: WorkerPool,
    limits: InputLimits,
    *,
    keeps_foreign: bool,
) -> CompactInput:
    """Reads a body. `source` has `max_local_bytes`."""
    if len(body) <= LARGE_INPUT:
        try:
            return await _read_body(body, source, seal, limits, keeps_foreign=keeps_foreign)
        except LargeHistory:
            pass  # it starts again, in another process
    source_answers = SourceAnswers(lambda: source)

    async def answer(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "sealing_keys":
            return seal.load_keys()
        return await source_answers.answer(name, *arguments, **options)

    return await workers.run(_read_remotely, body, limits, keeps_foreign, answer=answer, owner=source.owner)


async def _read_remotely(ask: Ask, body: bytes, limits: InputLimits, keeps_foreign: bool) -> CompactInput:
    seal = Seal(lambda: ask("sealing_keys"))
    result = await _read_body(body, remote_history_source(ask), seal, limits, keeps_foreign=keeps_foreign)
    return CompactInput(conversation=encode_conversation(result.conversation), losses=result.losses)


async def _read_body(
    body: bytes, source: HistorySource, seal: Seal, limits: InputLimits, *, keeps_foreign: bool
) -> CompactInput:
    """Orphan tool outputs are allowed: for a transcript they are text like any other."""
    compact_request = codec.decode_compact_request(body)
    request = Request(
        model=compact_request.model,
        input=compact_request.input,
        previous_response_id=compact_request.previous_response_id,
        instructions=compact_request.instructions,
        prompt_cache_key=compact_request.prompt_cache_key,
    )
    check_input(request, limits, "input")
    opener = CompactionOpener(seal=seal, owner=source.owner, keeps_foreign=keeps_foreign)
    resolved = await resolve_history(request, source, allow_orphans=True, opener=opener)
    if not input_items(resolved.request):
        raise MissingField(
            "input: there is nothing to compact: expected a conversation, or previous_response_id", param="input"
        )
    conversation = Conversation(request=resolved.request, sealed_items=resolved.sealed_items)
    return CompactInput(conversation=conversation, losses=resolved.losses)
