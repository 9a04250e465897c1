"""Fast path for the most common response that is not streamed: one complete text message.

Such a response has no losses and needs no events. `response` translates all others with the code of the stream. A test
checks that both give the same result.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from antiphon.dialects.chat.answers import Chunk, Delta
from antiphon.dialects.chat.events_to_hub import usage_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.protocol.content import OutputText
from antiphon.protocol.items import Message
from antiphon.protocol.nesting import with_nesting_limit
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus, ResponseStatus

_decode: Final = with_nesting_limit(msgspec.json.Decoder(Chunk).decode)


def text_response_to_hub(body: bytes, initial_response: Response, stamps: Stamps, wire: ChatWire) -> Response | None:
    """Return the response, or None if it is not one complete text message."""
    try:
        answer = _decode(body)
    except ValueError:
        return None
    if answer.error or not answer.choices or len(answer.choices) != 1 or wire.forced_tools == "schema":
        return None
    choice = answer.choices[0]
    if choice is None or choice.index or choice.delta is not None or choice.finish_reason != "stop" or choice.logprobs:
        return None
    text = _only_text(choice.message, wire)
    if text is None:
        return None
    item = Message(
        id=stamps.new_id("msg"),
        status=ItemStatus.COMPLETED,
        role="assistant",
        content=[OutputText(text=text, annotations=[], logprobs=[])],
    )
    return replace(
        initial_response,
        status=ResponseStatus.COMPLETED,
        completed_at=stamps.now(),
        output=[item],
        usage=usage_to_hub(choice.usage or answer.usage),
        service_tier=answer.service_tier or initial_response.service_tier,
    )


def _only_text(message: Delta | None, wire: ChatWire) -> str | None:
    """Return the text of a message that has only text and no reasoning tags."""
    if message is None or type(message.content) is not str or wire.think_tags == "implied":
        return None
    if (
        message.tool_calls
        or message.function_call
        or message.refusal
        or message.annotations
        or message.audio
        or message.images
    ):
        return None
    if message.reasoning_content or message.reasoning or message.reasoning_details:
        return None
    text = message.content
    return text if text and "<" not in text and not text.isspace() else None
