"""Replays a recorded turn offline, with the code that serves requests.

Ids, times and padding are new in each run, so they are ignored in the comparison, as are comment lines and piece
boundaries. Data that a trace does not hold, such as the choice of the upstream, is taken from the recording.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from typing import Final, cast

from msgspec import Struct

from antiphon import sse
from antiphon.config import Timeouts, UpstreamConfig
from antiphon.dialects import responses
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.dialects.dialect import ClientDialect, EventsFromHub
from antiphon.dialects.registry import HUB_DIALECT, SERVER_DIALECTS
from antiphon.dialects.responses.stream_out import EVENT_STYLES, EventStyle
from antiphon.errors import AntiphonError, ApiError, UpstreamFault
from antiphon.gateway.client_body import dialect_at_path, request_at_path
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.turn import OMISSIONS_NOTE, UpstreamTurn, is_json
from antiphon.gateway.turn_data import OriginalRequest, is_self_contained, prepare_request
from antiphon.gateway.upstreams import Target, Upstream
from antiphon.profiles import load_profile
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.stamps import Stamps
from antiphon.trace.reader import RecordedTrace
from antiphon.trace.records import ClientHead, ClientRequest, Route
from antiphon.upstream.transport import UpstreamResponse


class NotReplayable(AntiphonError):
    """A trace that lacks data needed for a replay."""


class Difference(Struct, frozen=True):
    """The first difference between the recorded and the replayed bytes, with some context."""

    what: str
    recorded: str
    made: str


class ReplayResult(Struct, frozen=True, kw_only=True):
    """The replayed turn, and its differences from the recording."""

    upstream_body: bytes | None  # None: nothing would be sent
    status: int
    answer: bytes
    losses: Losses
    differences: list[Difference]
    is_cut_short: bool  # the recorded stream has no end; compared up to its length


def replay_trace(record: RecordedTrace) -> ReplayResult:
    """Replays the recorded turn."""
    return asyncio.run(_replay(record))


class RecordedResponse:
    """A recorded upstream response with its original piece boundaries. It is also a transport that returns itself."""

    def __init__(self, record: RecordedTrace) -> None:
        head = record.upstream_head
        self.status = head.status if head else 0
        self.headers: Mapping[str, str] = head.headers if head else {}
        self._pieces = [piece.data.raw for piece in record.upstream_pieces]
        self._fault = _fault_in(record)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> UpstreamResponse:
        del method, url, headers, body, timeouts  # the recorded response answers every request
        if not self.status:
            raise self._fault or NotReplayable("the upstream did not answer, and the trace does not contain the reason")
        return self

    async def pieces(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._fault is not None:
            raise self._fault

    def abort(self) -> None:
        pass  # no resources

    async def close(self) -> None:
        pass


async def _replay(record: RecordedTrace) -> ReplayResult:
    client, head = _require_replayable(record)
    dialect = dialect_at_path(client.path)
    losses = Losses()
    turn: UpstreamTurn | None = None
    body: bytes | None = None
    try:
        request, request_losses = request_at_path(client.path, dialect, client.body.raw)
        losses.extend(request_losses)
        original = OriginalRequest(dialect.name, client.body.raw)
        body, turn = _make_turn(_add_history(request, record), record, original)
        status, answer = 200, await _replay_answer(turn, record, client, dialect, losses)
    except ApiError as error:
        status, answer = dialect.error_from_hub(error)
    if turn is not None:
        losses.extend(turn.losses)
    upstream_request = record.upstream_request
    recorded_answer = b"".join(piece.data.raw for piece in record.client_pieces)
    recorded_text, replayed_text, is_cut_short = (
        _align_streams(recorded_answer, answer) if _is_stream(head) else (recorded_answer, answer, False)
    )
    return ReplayResult(
        upstream_body=body,
        status=status,
        answer=answer,
        losses=losses,
        differences=[
            *_differences(
                "the request to the upstream", upstream_request.body.raw if upstream_request else b"", body or b""
            ),
            *_differences("the status", b"%d" % head.status, b"%d" % status),
            *_differences("the answer", _without_random_values(recorded_text), _without_random_values(replayed_text)),
        ],
        is_cut_short=is_cut_short,
    )


def _require_replayable(record: RecordedTrace) -> tuple[ClientRequest, ClientHead]:
    """The recorded client request and response head; raises if the trace cannot be replayed."""
    client, head = record.client_request, record.client_head
    if client is None:
        raise NotReplayable(f"{record.id}: no request was recorded")
    if client.method == "WEBSOCKET":
        raise NotReplayable(f"{record.id}: the turn used a WebSocket; only HTTP turns can be replayed")
    if head is None:
        raise NotReplayable(f"{record.id}: no response was recorded, so there is nothing to compare with")
    if record.notes.get("conversation"):
        raise NotReplayable(
            f"{record.id}: the trace has several upstream requests, for a summary or a retry; such turns "
            "cannot be replayed"
        )
    if record.omitted_bytes:
        raise NotReplayable(
            f"{record.id}: the trace was too large and does not contain {', '.join(sorted(record.omitted_bytes))}"
        )
    return client, head


def _add_history(request: Request, record: RecordedTrace) -> Request:
    """The request with its history, which the trace holds in the hub request."""
    if is_self_contained(request) and request.truncation != "auto":
        return request
    hub = record.hub_request
    if hub is None:
        raise NotReplayable(f"{record.id}: the history of the request was not found, so nothing was translated")
    return codec.decode_request(hub.body.raw)


def _make_turn(request: Request, record: RecordedTrace, original: OriginalRequest) -> tuple[bytes, UpstreamTurn]:
    """The body for the upstream, and the turn."""
    route = record.route
    if route is None:
        raise NotReplayable(f"{record.id}: no upstream was chosen, so nothing was translated")
    numbers = count(1)
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers):032x}", lambda: int(record.summary.time))
    target = _make_target(route, str(record.notes.get(OMISSIONS_NOTE) or ""))
    plan = target.plan_translation(is_stored=bool(record.notes.get("kept")))
    prepared = prepare_request(request, plan, original)
    return prepared.body, UpstreamTurn(prepared, target, stamps, _padding)


def _make_target(route: Route, omitted_parts: str) -> Target:
    """The recorded upstream, with the parts that it was known to refuse."""
    profile = load_profile(route.profile)
    upstream = Upstream(
        name=route.upstream,
        config=UpstreamConfig(name=route.upstream, dialect=profile.dialect),
        profile=profile,
        server_dialect=SERVER_DIALECTS[profile.dialect],
        base_url="",
        headers={},
        timeouts=Timeouts(),
    )
    target = Target(upstream=upstream, model=route.model)
    for part in omitted_parts.split():
        leave_out = upstream.server_dialect.wire_after_refusal
        plan = target.plan_translation()
        wire = leave_out(plan.wire, route.model, cast(RefusedPart, part)) if leave_out is not None else None
        if wire is not None:
            upstream.refusals.remember(route.model, cast(RefusedPart, part), wire)
    return target


async def _replay_answer(
    turn: UpstreamTurn, record: RecordedTrace, client: ClientRequest, dialect: ClientDialect, losses: Losses
) -> bytes:
    """The response body; errors before its first byte are raised."""
    if record.upstream_request is None:
        raise NotReplayable(f"{record.id}: no request was sent to an upstream, so there is no response to translate")
    if turn.prepared.request.stream:
        return await _replay_stream(turn, record, client, dialect, losses)
    response = await turn.read_response(await turn.send_request(RecordedResponse(record)))
    return turn.answer_client(dialect, response)


async def _replay_stream(
    turn: UpstreamTurn, record: RecordedTrace, client: ClientRequest, dialect: ClientDialect, losses: Losses
) -> bytes:
    extensions = [extension.strip() for extension in client.headers.get("antiphon-extensions", "").lower().split(",")]
    pipe = turn.make_pipe(
        _writer(turn, record, dialect),
        reports_losses=dialect is HUB_DIALECT and "losses" in extensions,
        client_dialect=None if _wants_json_array(record, dialect) else dialect,
    )
    # Whether the 200 was sent before a failure depended on timing; the recorded head has the answer.
    has_started = record.client_head is not None and record.client_head.status == 200
    written: list[bytes] = []
    try:
        await _feed_answer(turn, await turn.send_request(RecordedResponse(record)), pipe, written)
    except ApiError as error:
        if not has_started:
            raise
        written += _all_output(pipe, pipe.finish(error))
    if pipe.error is not None and not has_started:
        raise pipe.error
    losses.extend(pipe.losses)
    return b"".join(written)


def _writer(turn: UpstreamTurn, record: RecordedTrace, dialect: ClientDialect) -> EventsFromHub:
    request = turn.prepared.request
    if dialect is HUB_DIALECT:
        return responses.EventsFromHub(request, style=_style_in(record))
    if _wants_json_array(record, dialect):
        return dialect.events_from_hub(request, as_json_array=True)
    return dialect.events_from_hub(request)


def _wants_json_array(record: RecordedTrace, dialect: ClientDialect) -> bool:
    return dialect.streams_json_array and record.client_head is not None and not _is_stream(record.client_head)


def _style_in(record: RecordedTrace) -> EventStyle:
    return next((style for style in EVENT_STYLES if style == record.notes.get("style")), "default")


async def _feed_answer(turn: UpstreamTurn, answer: UpstreamResponse, pipe: Pipe, written: list[bytes]) -> None:
    if is_json(answer):
        written += _all_output(pipe, pipe.write_events(await turn.read_response_as_events(answer)))
        return
    async for piece in answer.pieces():
        written += _all_output(pipe, pipe.feed(piece))
        if pipe.has_ended:
            return
    written += _all_output(pipe, pipe.finish())


def _all_output(pipe: Pipe, output: bytes) -> Iterator[bytes]:
    """The output of a call of the pipe, and its backlog."""
    yield output
    while pipe.has_backlog:
        yield pipe.write_backlog()


def _fault_in(record: RecordedTrace) -> UpstreamFault | None:
    """The recorded transport error, which the bytes do not show."""
    match record.notes.get("upstream_fault"):
        case str() as note:
            code, _, message = note.partition(": ")
            return UpstreamFault(message, code=code, status=504 if code == "upstream_timeout" else None)
        case _:
            return None


def _is_stream(head: ClientHead) -> bool:
    return head.headers.get("content-type", "").startswith("text/event-stream")


def _padding(length: int) -> str:
    return "-" * (length % 16 + 1)


def _align_streams(recorded: bytes, replayed: bytes) -> tuple[bytes, bytes, bool]:
    """Both streams as lines, one per event, and whether the recorded one has no end. If so, the other is cut to its
    length."""
    recorded_text, replayed_text = _frames(recorded), _frames(replayed)
    is_cut_short = not recorded_text or recorded_text[-1].split(b" ", 1)[0] not in LAST_EVENTS
    return (
        b"\n".join(recorded_text),
        b"\n".join(replayed_text[: len(recorded_text)] if is_cut_short else replayed_text),
        is_cut_short,
    )


def _differences(what: str, recorded: bytes, replayed: bytes) -> list[Difference]:
    if recorded == replayed:
        return []
    first_difference = next(
        (
            index
            for index, (recorded_text, replayed_text) in enumerate(zip(recorded, replayed, strict=False))
            if recorded_text != replayed_text
        ),
        None,
    )
    start = max(0, (min(len(recorded), len(replayed)) if first_difference is None else first_difference) - EXCERPT_LEAD)
    return [
        Difference(what, *(text[start : start + EXCERPT].decode("utf-8", "replace") for text in (recorded, replayed)))
    ]


def _frames(stream: bytes) -> list[bytes]:
    decoder = sse.Decoder()
    return [frame.event.encode() + b" " + frame.data for frame in [*decoder.feed(stream), *decoder.finish()]]


def _without_random_values(data: bytes) -> bytes:
    """`data` with ids numbered in order of appearance, and without times and padding."""
    numbers: dict[bytes, bytes] = {}
    data = OWN_ID.sub(lambda match: numbers.setdefault(match[0], b"%b_%d" % (match[1], len(numbers))), data)
    return PADDING.sub(b"", TIME.sub(rb"\g<1>0", data))


EXCERPT_LEAD: Final = 60
EXCERPT: Final = 300
# Names of the last event of a stream, in any dialect; `[DONE]` has no name.
LAST_EVENTS: Final = {b"", b"response.completed", b"response.failed", b"response.incomplete", b"message_stop", b"error"}
OWN_ID: Final = re.compile(rb"\b([a-z]{2,8})_[0-9a-f]{32,40}\b")
TIME: Final = re.compile(rb'("(?:created|created_at|completed_at)":)\d+')
PADDING: Final = re.compile(rb',?"obfuscation":"[^"]*"')
