"""A whole answer for a gemini client, by way of the stream (STR-14): it is written as all its pieces joined.

An error in place of an answer is raised: the endpoint then answers with `error_from_hub`, as for any error.
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
    """A response as one candidate. Raises the error of one that failed, or that did not come to its end."""
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
