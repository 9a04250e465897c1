"""Translates responses that are not streamed, with the code of the stream (STR-14).

A server's message is read as one delta; for a client, all pieces are joined. An error in place of a response is raised
in both directions; the endpoint then uses `error_from_hub`.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from antiphon.dialects.chat.answer_from_hub import AnswerFromHub, completion_id, join_pieces, usage_from_hub
from antiphon.dialects.chat.answers import ChoiceOut, CompletionOut
from antiphon.dialects.chat.events_to_hub import EventsToHub
from antiphon.dialects.chat.text_response import text_response_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.response_errors import raise_unless_ended
from antiphon.protocol.fold import replay
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: ChatWire = ChatWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Translate a server's response. Raises its error, or `UpstreamFault` if the body is no chat completion."""
    plain = text_response_to_hub(body, initial_response, stamps, wire)
    return (plain, Losses()) if plain is not None else response_by_events(body, request, initial_response, stamps, wire)


def response_by_events(
    body: bytes, request: Request, initial_response: Response, stamps: Stamps, wire: ChatWire
) -> tuple[Response, Losses]:
    """Translate any response, with the code of the stream."""
    return EventsToHub(request, initial_response, stamps, wire).response(body)


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Encode a response as one chat completion (E-3). Raises the error of a failed or unfinished response."""
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(request, losses)
    pieces = [piece for event in replay(response) if (piece := answer.feed(event))]
    choice = join_pieces([*pieces, ChoiceOut(delta=answer.flush())])
    assert choice.delta
    has_other_content = choice.delta.refusal or choice.delta.tool_calls
    message = msgspec.structs.replace(
        choice.delta,
        role="assistant",
        content=choice.delta.content or (None if has_other_content else ""),
        refusal=choice.delta.refusal or None,
    )
    final_choice = msgspec.structs.replace(
        choice, delta=UNSET, message=message, finish_reason=answer.finish_reason(response)
    )
    completion = CompletionOut(
        id=completion_id(response),
        object="chat.completion",
        created=response.created_at,
        model=response.model,
        choices=[final_choice],
        service_tier=response.service_tier,
        usage=usage_from_hub(response.usage) if response.usage else UNSET,
    )
    return msgspec.json.encode(completion), losses
