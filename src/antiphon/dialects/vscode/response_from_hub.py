"""Writes a response that is not streamed for an editor, with the code of the stream (STR-14).

An error in place of a response is raised; the endpoint then uses `error_from_hub`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from antiphon.dialects.common.response_errors import raise_unless_ended
from antiphon.dialects.vscode.answer_from_hub import AnswerFromHub, join_parts
from antiphon.dialects.vscode.response_lines import DoneLine, ResponsePart
from antiphon.protocol.fold import replay
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response


class ResponseOut(Struct, frozen=True, kw_only=True):
    parts: list[ResponsePart]
    end: DoneLine


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Encode a response as parts. Raises the error of a failed or unfinished response."""
    del request  # tools keep the editor's names, so nothing of the request is needed
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(losses)
    parts = [part for event in replay(response) for part in answer.feed(event)]
    return msgspec.json.encode(ResponseOut(parts=join_parts(parts), end=answer.done_line(response))), losses
