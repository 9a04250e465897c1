"""A whole answer for an editor, by way of the stream (STR-14): all its parts, pieces of one text joined, and how it ended.

An error in place of an answer is raised: the endpoint then answers with `error_from_hub`, as for any error.
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
    """A response as parts. Raises the error of one that failed, or that did not come to its end."""
    del request  # the editor knows its tools by the names it gave them
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(losses)
    parts = [part for event in replay(response) for part in answer.feed(event)]
    return msgspec.json.encode(ResponseOut(parts=join_parts(parts), end=answer.done_line(response))), losses
