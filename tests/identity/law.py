"""Plays generated cases through a gateway whose client and server speak one dialect, and collects the differences."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.identity.allowed import Direction
from tests.identity.source import MODEL, Case, Source
from tests.recorded_traffic.answers import answer_events
from tests.recorded_traffic.exchanges import EVENT_STREAM, JSON, JSON_LINES
from tests.recorded_traffic.json_diff import Delta, compare_json
from tests.recorded_traffic.play import ClientRequest, Player, UpstreamAnswer
from tests.recorded_traffic.run import DEFAULTS

from antiphon import sse
from antiphon.dialects.dialect import ServerDialectName


class Difference(NamedTuple):
    """One value that did not arrive as it was sent."""

    direction: Direction
    delta: Delta
    case: int


async def play_cases(source: Source, *, count: int, seed: int) -> list[Difference]:
    """The differences of many cases; every second one is a stream."""
    generator = source.generator(seed)
    differences = []
    player = Player()
    try:
        for number in range(count):
            case = source.make_case(generator, bool(number % 2))
            differences += await play_case(player, source, case, number)
    finally:
        await player.close()
    return differences


async def play_case(player: Player, source: Source, case: Case, number: int) -> list[Difference]:
    dialect = source.dialect
    is_stream = bool(number % 2)
    request = ClientRequest(dialect=dialect, model=MODEL, body=case.request, is_stream=is_stream)
    answer = upstream_answer(dialect, case.answer, is_stream)
    outcome = await player.play(request, dialect, DEFAULTS[dialect], answer)
    # Violations of the grammar are the server's: they pass as they are.
    exceptions = [event for event in outcome.events if "exception" in event]
    logged = [Difference("answer", Delta("log", "added", str(event)[-300:]), number) for event in exceptions]
    return logged + compare_case(source.expect(case), number, outcome.upstream_bodies, outcome.status, outcome.body)


def compare_case(case: Case, number: int, sent: list[bytes], status: int, body: bytes) -> list[Difference]:
    """Compares the expected case with what the server received (`sent`), and with the status and the body for the client."""
    bodies = [json.loads(data) for data in sent if data]  # a request for the size of a model has no body
    if status != 200 or not bodies:
        return [Difference("request", Delta("refused", str(status), body.decode()[:300]), number)]
    differences = [Difference("request", delta, number) for delta in compare_json(case.request, bodies[0])]
    if number % 2:
        return differences + [Difference("stream", delta, number) for delta in _compare_events(case.answer, body)]
    deltas = compare_json(case.answer[0], json.loads(body))
    return differences + [Difference("answer", delta, number) for delta in deltas]


def _compare_events(before: list[dict[str, Any]], body: bytes) -> list[Delta]:
    after = answer_events(body)
    if after is None:
        return [Delta("events", "missing", body.decode()[:300])]
    if len(before) == len(after):
        return compare_json(before, after, "events")
    return [Delta("events", "length", f"{len(before)} → {len(after)}")]


def upstream_answer(dialect: ServerDialectName, events: list[dict[str, Any]], is_stream: bool) -> UpstreamAnswer:
    """The answer of a case as a server of the dialect sends it."""
    encoded = [json.dumps(event).encode() for event in events]
    if not is_stream:
        return UpstreamAnswer(status=200, headers={"content-type": JSON}, pieces=encoded)
    if dialect == "ollama":
        headers, frames = {"content-type": JSON_LINES}, [line + b"\n" for line in encoded]
    elif dialect in ("chat", "gemini"):
        frames = [sse.encode_data(line) for line in encoded] + [sse.DONE_FRAME] * (dialect == "chat")
        headers = {"content-type": EVENT_STREAM}
    else:
        frames = [sse.encode_frame(event["type"], line) for event, line in zip(events, encoded, strict=True)]
        headers = {"content-type": EVENT_STREAM}
    return UpstreamAnswer(status=200, headers=headers, pieces=[b"".join(frames)])
