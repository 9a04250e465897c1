"""Writes a whole answer for a gemini client: the pieces of a stream, joined (STR-14).

A failed response is raised as an error; the endpoint then answers with `error_from_hub`.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from antiphon.dialects.common.response_errors import raise_unless_ended
from antiphon.dialects.gemini.answer_from_hub import AnswerFromHub, join_candidates, usage_from_hub
from antiphon.dialects.gemini.events_from_hub import initial_answer
from antiphon.protocol.fold import replay
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Write a response as one candidate. Raises the error of a response that failed or did not end."""
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(request, losses)
    pieces = [piece for event in replay(response) if (piece := answer.feed(event))]
    candidate = join_candidates([*pieces, answer.final_candidate(response)])
    body = msgspec.structs.replace(
        initial_answer(response),
        candidates=[candidate],
        usage_metadata=usage_from_hub(response.usage) if response.usage else UNSET,
    )
    return msgspec.json.encode(body), losses
