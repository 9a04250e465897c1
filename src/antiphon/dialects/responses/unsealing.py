"""Takes a server's encrypted reasoning out of its envelope for a client of this API.

The gateway stores the envelope, which names the maker. A client gets what the server sent, and sends it back as it is.
Reasoning that a server of another API made stays in its envelope.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.protocol.events import RESPONSE_EVENTS, ItemAdded, ItemDone, ResponseEvent, StreamEvent
from antiphon.protocol.items import Item, ItemParam, ReasoningParam
from antiphon.protocol.response import Response

_I = TypeVar("_I", bound=Item | ItemParam)


def unseal_item(item: _I) -> _I:
    """The item as the server sent it."""
    if not isinstance(item, ReasoningParam) or not item.encrypted_content:
        return item
    envelope = unseal_reasoning(item.encrypted_content)
    match envelope.content if envelope is not None else None:
        case {"encrypted_content": str() as sealed}:
            return replace(item, encrypted_content=sealed)
        case _:
            return item


def unseal_response(response: Response) -> Response:
    """The response with its items as the server sent them."""
    if not any(isinstance(item, ReasoningParam) and item.encrypted_content for item in response.output):
        return response
    return replace(response, output=[unseal_item(item) for item in response.output])


def unseal_event(event: StreamEvent) -> StreamEvent:
    """The event with its items as the server sent them."""
    kind = type(event)
    if kind in RESPONSE_EVENTS:
        assert isinstance(event, ResponseEvent)
        response = unseal_response(event.response)
        return event if response is event.response else replace(event, response=response)
    if isinstance(event, ItemAdded | ItemDone) and event.item is not None:
        item = unseal_item(event.item)
        return event if item is event.item else replace(event, item=item)
    return event
