"""Servers to check: a conformant one, and the same one with one change in its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from antiphon.check.case import CaseOutcome
from antiphon.check.catalogue import CASES, CASES_BY_ID
from antiphon.check.run import first_model, run_cases
from antiphon.check.session import CheckedServer, CheckTarget
from antiphon.config import Timeouts
from antiphon.testing import ReceivedRequest, ResponsesServer
from antiphon.testing.script import End, Step
from antiphon.upstream.http import HttpTransport

KEY = "sk-check-1234567890"
PATIENCE = Timeouts(connect=10.0, first_byte=20.0, idle=20.0, total=30.0)


class ServerAnswer(msgspec.Struct):
    """An answer before it is sent; a test may change it."""

    request: ReceivedRequest
    status: int
    headers: dict[str, str]
    body: bytes
    ending: End | None = None

    @property
    def is_turn(self) -> bool:
        """Whether it is the answer to a turn, and not an error."""
        return self.request.method == "POST" and self.status == 200

    @property
    def is_stream(self) -> bool:
        return self.headers["content-type"].startswith("text/event-stream")

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @json.setter
    def json(self, value: Any) -> None:
        self.body = msgspec.json.encode(value)

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The events of a stream; setting them writes them anew, each with its event line, and [DONE] after them."""
        blocks = [block for block in self.body.split(b"\n\n") if block and not block.endswith(b"[DONE]")]
        return [msgspec.json.decode(block.partition(b"data: ")[2]) for block in blocks]

    @frames.setter
    def frames(self, events: Iterable[dict[str, Any]]) -> None:
        frames = [b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event)) for event in events]
        self.body = b"".join(frames) + b"data: [DONE]\n\n"


Break = Callable[[ServerAnswer], None]


class JudgedServer(ResponsesServer):
    """A conformant server whose answers `breaks` changes."""

    def __init__(self, breaks: Break = lambda answer: None, **settings: Any) -> None:  # noqa: ARG005
        super().__init__(**{"models": ["mock-1"], **settings})
        self._breaks = breaks

    def steps_for(self, request: ReceivedRequest) -> Iterable[Step]:
        answer = _parse_answer(request, super().steps_for(request))
        answer.headers["x-request-id"] = "req_1"
        if answer.status >= 400:
            _respell(answer)
        elif answer.is_turn and answer.is_stream:
            _pad(answer)
        self._breaks(answer)
        head = f"HTTP/1.1 {answer.status} Status\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in answer.headers.items()
        )
        yield f"{head}content-length: {len(answer.body)}\r\n\r\n".encode("latin-1") + (
            b"" if answer.ending else answer.body
        )
        if answer.ending is not None:
            yield answer.ending


def check(url: str, ids: Iterable[str] = (), *, key: str | None = None, model: str = "") -> dict[str, CaseOutcome]:
    """Runs these cases, or all, and returns their outcomes by id."""
    case_ids = list(ids)

    async def run() -> list[CaseOutcome]:
        transport = HttpTransport({})
        try:
            target = CheckTarget(base_url=url, model=model, key=key, timeouts=PATIENCE)
            name = model or await first_model(CheckedServer(target, transport)) or ""
            network = CheckedServer(msgspec.structs.replace(target, model=name), transport)
            reported: list[CaseOutcome] = []
            outcomes = await run_cases(
                network, [CASES_BY_ID[id] for id in case_ids] if case_ids else CASES, reported.append
            )
            assert sorted(outcome.case.id for outcome in reported) == sorted(outcome.case.id for outcome in outcomes)
            return outcomes
        finally:
            await transport.close()

    return {outcome.case.id: outcome for outcome in asyncio.run(run())}


def _parse_answer(request: ReceivedRequest, steps: Iterable[Step]) -> ServerAnswer:
    head, _, body = b"".join(step for step in steps if isinstance(step, bytes)).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    headers.pop("content-length", None)
    chunked = headers.pop("transfer-encoding", None)
    return ServerAnswer(request, int(first.split()[1]), headers, _joined(body) if chunked else body)


def _joined(chunks: bytes) -> bytes:
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        body += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return body


def _respell(answer: ServerAnswer) -> None:
    """ERR-2: the strict fake says what a well-known provider says."""
    body = answer.json
    body["error"]["type"] = "not_found" if answer.status == 404 else "invalid_request"
    answer.json = body


def _pad(answer: ServerAnswer) -> None:
    """STR-13"""
    if answer.request.json.get("stream_options", {}).get("include_obfuscation"):
        answer.frames = [{**event, "obfuscation": "x"} if "delta" in event else event for event in answer.frames]
