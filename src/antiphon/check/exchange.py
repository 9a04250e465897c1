"""One request and its answer, decoded on demand as a response, an error or a stream, each with its flaws."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from antiphon.check.findings import Flaw, excerpt
from antiphon.check.lenient_decoding import ShapeProblem, decode_with_problems, join_problems
from antiphon.check.published_form import decode_response
from antiphon.check.sse_form import event_type_of, parse_blocks
from antiphon.check.stream import JudgedStream, judge_stream
from antiphon.protocol.codec import decode_as, decode_json
from antiphon.protocol.errors import ErrorBody, ErrorPayload
from antiphon.protocol.response import Response


class CheckExchange:
    """A summary of the request, and the whole answer. `incomplete_reason` is empty if the body is
    complete."""

    def __init__(
        self, request_summary: str, status: int, headers: Mapping[str, str], body: bytes, incomplete_reason: str = ""
    ) -> None:
        self.request_summary = request_summary
        self.status = status
        self.headers = headers
        self.body = body
        self.incomplete_reason = incomplete_reason

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def answer_summary(self) -> str:
        """A summary of the answer."""
        head = f"{self.status} {self.content_type or 'without a content type'}"
        return f"{head}: {excerpt(self.body)}" + (f" ({self.incomplete_reason})" if self.incomplete_reason else "")

    @cached_property
    def json(self) -> Any:
        """The body as a JSON object; empty if it is not one, so that every field is missing."""
        try:
            value = decode_json(self.body)
        except msgspec.DecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def output(self) -> list[dict[str, Any]]:
        """The items of a response as JSON."""
        output = self.json.get("output")
        return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []

    @cached_property
    def _as_response(self) -> tuple[Response | None, list[Flaw]]:
        response, problems = decode_with_problems(self.body, decode_response, {"status": "completed"})
        problems_by_row: dict[str, list[ShapeProblem]] = {}
        for problem in problems:
            problems_by_row.setdefault(_row_of(problem.path), []).append(problem)
        return response, [Flaw(row, join_problems(row_problems)) for row, row_problems in problems_by_row.items()]

    @property
    def response(self) -> Response | None:
        """The response, with substitutes for missing values; None if the body cannot be decoded."""
        return self._as_response[0]

    @property
    def response_flaws(self) -> list[Flaw]:
        return self._as_response[1]

    @cached_property
    def _as_error(self) -> tuple[ErrorPayload | None, list[Flaw]]:
        body, problems = decode_with_problems(self.body, lambda data: decode_as(data, ErrorBody))
        return (body.error if body else None), [Flaw("ERR-1", join_problems(problems))] if problems else []

    @property
    def error(self) -> ErrorPayload | None:
        return self._as_error[0]

    def error_field(self, name: str) -> Any:
        """Return a field of the error as JSON; None if it is missing."""
        error = self.json.get("error")
        return error.get(name) if isinstance(error, dict) else None

    @property
    def error_flaws(self) -> list[Flaw]:
        return self._as_error[1]

    @cached_property
    def stream(self) -> JudgedStream:
        return judge_stream(self.body)

    @cached_property
    def frames(self) -> list[Any]:
        """The data of each event as JSON; events without valid JSON are left out."""
        event_data = [block.data for block in parse_blocks(self.body) if event_type_of(block.data) is not None]
        return [msgspec.json.decode(data) for data in event_data]

    @property
    def is_stream(self) -> bool:
        return self.status == 200 and self.content_type == "text/event-stream"


def _row_of(path: str) -> str:
    """Return the row that covers a field of a response."""
    if path.startswith("output["):
        return "ITEM-2"
    return "REQ-4" if path.startswith("usage") else "HTTP-2"
