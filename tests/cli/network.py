"""What the tests of the command line share: a gateway without a network, streams that look like terminals, answers to
give."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple

import msgspec
from tests.generate.events import counting_stamps

from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault
from antiphon.protocol.emitters import SseEmitter
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, make_initial_response
from antiphon.protocol.writer import ResponseWriter

MODELS = b'{"object":"list","data":[{"id":"mock-1","object":"model","created":0,"owned_by":"lab"},{"id":"local","owned_by":"embedded"}]}'
USAGE = Usage(
    input_tokens=12,
    output_tokens=34,
    total_tokens=46,
    input_tokens_details=InputTokensDetails(cached_tokens=0),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
)


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


class Sent(NamedTuple):
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class FakeAnswer:
    """An answer in pieces; a piece may be a fault, which is raised when its turn comes."""

    def __init__(self, *pieces: bytes | Exception, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = headers or {}
        self.aborted = False
        self._pieces = pieces

    async def pieces(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def abort(self) -> None:
        self.aborted = True


class FakeNetwork:
    """A transport with one gateway behind it: by path what it answers, a fault instead of an answer included."""

    def __init__(self, **answers: FakeAnswer | Exception) -> None:
        self._answers = answers
        self.sent: list[Sent] = []
        self.closed = False

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> FakeAnswer:
        assert timeouts.total > 0
        self.sent.append(Sent(method, url, headers, body))
        answer = self._answers[url.rpartition("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


def stream(write: Callable[[ResponseWriter], None], **headers: str) -> FakeAnswer:
    """An event stream that says what `write` tells the writer."""
    frames: list[bytes] = []
    request = Request(model="mock-1", input="hi", stream=True)
    writer = ResponseWriter(
        make_initial_response(request, id="resp_1", created_at=1), SseEmitter(frames.append), counting_stamps()
    )
    write(writer)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FakeAnswer(*frames, headers={"content-type": "text/event-stream", "x-request-id": "req_7", **named})


def says(*deltas: str, usage: Usage | None = USAGE) -> Callable[[ResponseWriter], None]:
    """A model that answers with text."""

    def write(writer: ResponseWriter) -> None:
        for delta in deltas:
            writer.add_text("m", delta)
        writer.complete(usage)

    return write


def refusal(
    status: int, type: str, code: str | None, message: str, param: str | None = None, **headers: str
) -> FakeAnswer:
    """A gateway that does not want to."""
    body = msgspec.json.encode({"error": {"type": type, "code": code, "message": message, "param": param}})
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FakeAnswer(body, status=status, headers={"content-type": "application/json", **named})


def nobody() -> UpstreamFault:
    return UpstreamFault("the upstream cannot be reached", code="upstream_unavailable")
