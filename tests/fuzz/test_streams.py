"""Damaged answers of upstreams, through every step between their bytes and the client's, without sockets.

For every upstream answer the client's stream passes the grammar and ends once (STR-7, STR-8), in every dialect of
clients; a plain client gets a response or an upstream error, never an internal one."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from tests.fuzz import answer_checks, corpus
from tests.fuzz.cases import batches, case
from tests.fuzz.mutate import damaged_bytes, damaged_json, pieces
from tests.gateway.scripted import JSON, ScriptedAnswer

from antiphon import sse
from antiphon.dialects import responses
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ApiError, ClientFault, UpstreamFault
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.turn_data import prepare_request
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_event, decode_request, decode_response
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import fold_events, replay_response
from antiphon.protocol.grammar import Violation, find_violations
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps

pytestmark = pytest.mark.without_coverage
PLAIN = b'{"model": "m", "input": "Hi", "stream": true}'
TOOLS = (
    b'"tools": [{"type": "function", "name": "get_weather"}, {"type": "custom", "name": "apply_patch"}, {"type": "web_search"},'
    b'{"type": "function", "name": "f"}]'
)
# The request, since it decides what an answer means.
ASKED = [
    PLAIN,
    PLAIN[:-1] + b", " + TOOLS + b', "include": ["message.output_text.logprobs", "reasoning.encrypted_content"]}',
    PLAIN[:-1] + b", " + TOOLS + b', "parallel_tool_calls": false, "max_tool_calls": 1}',
    PLAIN[:-1] + b", " + TOOLS + b', "tool_choice": {"type": "function", "name": "f"}}',
    PLAIN[:-1] + b", " + TOOLS + b', "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": '
    b'[{"type": "function", "name": "f"}]}}',
    PLAIN[:-1] + b', "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}}',
]
CUT = UpstreamFault("the connection was cut", code="upstream_disconnected")


@batches(16)
def test_damaged_stream_of_chat_ends_once(batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            check_stream("chat", chance)


@batches(12)
def test_damaged_stream_of_responses_ends_once(batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            check_stream("responses", chance)


@batches(12)
def test_damaged_stream_of_messages_ends_once(batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            check_stream("messages", chance)


@batches(8)
def test_damaged_stream_of_gemini_ends_once(batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            check_stream("gemini", chance)


@batches(8)
def test_damaged_stream_of_ollama_ends_once(batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            check_stream("ollama", chance)


@pytest.mark.parametrize("client", ["chat", "messages", "gemini", "ollama"])
@batches(3)
def test_damaged_stream_ends_once_for_clients_of_other_dialects(client: str, batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            check_stream_for(client, chance)


@pytest.mark.parametrize("dialect", corpus.DIALECTS)
@batches(3)
def test_damaged_plain_answer_is_a_response_or_an_error(dialect: str, batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            damage = chance.choice((damaged_json, damaged_json, damaged_bytes))
            check_whole(dialect, JSON, damage(chance.choice(corpus.answers(dialect)), chance), chance)


@pytest.mark.parametrize("dialect", corpus.DIALECTS)
@batches(1)
def test_damaged_stream_for_a_plain_client_is_a_response_or_an_error(dialect: str, batch: range) -> None:
    for number in batch:
        with case(number) as chance:
            headers = {"content-type": corpus.stream_type(dialect)}
            check_whole(dialect, headers, corpus.damaged_stream_of(dialect, chance), chance)


def check_stream(dialect: str, chance: Random) -> None:
    damaged = corpus.damaged_stream_of(dialect, chance)
    turn_of = _asking(dialect, chance)
    losses = chance.random() < 0.3
    ending = chance.choice((None, None, CUT))
    violations: list[Violation] = []
    turn = turn_of()
    pipe = turn.make_pipe(
        responses.EventsFromHub(turn.prepared.request), reports_losses=losses, on_violation=violations.append
    )
    out = b"".join(map(pipe.feed, pieces(damaged, chance))) + pipe.finish(ending)
    answer_checks.check_stream("responses", out)
    frames = sse.Decoder().feed(out)
    assert pipe.response is not None
    events = decoded(frames[:-1])
    # Before it was encoded, an item that could not be normalized was not recognised as such (STR-4).
    assert [violation for violation in ours(violations) if dialect != "responses" or violation.row != "STR-4"] == []
    if events is None:
        assert dialect == "responses"
    else:
        assert ours(find_violations(events)) == []
        sent, _ = responses.response_from_hub(pipe.response, turn.prepared.request)
        assert msgspec.json.decode(sent) == msgspec.json.decode(codec.encode(fold_events(events)))
    assert (pipe.error is not None) == (pipe.response.status == "failed") or pipe.response.error is not None
    assert pipe.finish() == b""
    if chance.random() < 0.2:  # law (b): any split gives equal events, of damaged bytes too
        turn = turn_of()
        whole = turn.make_pipe(responses.EventsFromHub(turn.prepared.request), reports_losses=losses)
        assert whole.feed(damaged) + whole.finish(ending) == out
    if chance.random() < 0.2:  # and the older style, which the grammar does not cover, also ends
        older = _pipe(turn_of(), "responses", style="older")
        assert older.feed(damaged) + older.finish(ending)
        assert older.has_ended


def check_stream_for(client: str, chance: Random) -> None:
    """An upstream of any dialect, for a client of another dialect than the hub's."""
    dialect = chance.choice(corpus.DIALECTS)
    damaged = corpus.damaged_stream_of(dialect, chance)
    turn_of = _asking(dialect, chance)
    ending = chance.choice((None, None, CUT))
    array = {"as_json_array": True} if client == "gemini" and chance.random() < 0.2 else {}
    pipe = _pipe(turn_of(), client, **array)
    out = b"".join(map(pipe.feed, pieces(damaged, chance))) + pipe.finish(ending)
    if array:
        answer_checks.check_gemini(msgspec.json.decode(out))
    else:
        answer_checks.check_stream(client, out)
    assert pipe.finish() == b""
    whole = _pipe(turn_of(), client, **array)  # law (b)
    assert whole.feed(damaged) + whole.finish(ending) == out


def check_whole(dialect: str, headers: dict[str, str], damaged: bytes, chance: Random) -> None:
    turn = _asking(dialect, chance)()
    try:
        response = _finished(turn.read_response(ScriptedAnswer(pieces(damaged, chance), headers)))
    except ApiError as error:
        check_error(error)
        return
    assert ours(find_violations(list(replay_response(response)))) == []
    body, _ = responses.response_from_hub(response, turn.prepared.request)
    if dialect != "responses" or not has_unknown_content(response):
        assert decode_response(body).status == response.status
    client: Any = chance.choice(("chat", "messages", "gemini", "ollama"))
    body, _ = CLIENT_DIALECTS[client].response_from_hub(response, turn.prepared.request)
    answer_checks.check_whole(client, body)


def ours(violations: list[Violation]) -> list[Violation]:
    """Without the upstream's own types: unknown types are passed through unchanged (ITEM-5)."""
    return [violation for violation in violations if violation.row != "ITEM-5"]


def decoded(frames: list[sse.Frame]) -> list[StreamEvent] | None:
    """The events; None if one contains a value that only looks like a known type, which is also passed through."""
    try:
        return [decode_event(frame.data) for frame in frames]
    except ApiError:
        return None


def has_unknown_content(response: Response) -> bool:
    """The same for a response."""
    try:
        decode_response(codec.encode(response))
    except ApiError:
        return True
    return False


def check_error(error: ApiError) -> None:
    assert error.code != "internal_error", error


def _asking(dialect: str, chance: Random) -> Any:
    """Creates the same turn any number of times, with the same ids."""
    target = chance.choice([target for target in corpus.targets() if target.upstream.config.dialect == dialect])
    try:
        prepared = prepare_request(decode_request(chance.choice(ASKED)), target.plan_translation())
    except ClientFault:  # some servers do not support every request
        prepared = prepare_request(decode_request(PLAIN), target.plan_translation())

    def turn() -> UpstreamTurn:
        numbers = iter(range(1_000_000))
        return UpstreamTurn(
            prepared, target, Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_760_000_000), None
        )

    return turn


def _pipe(turn: UpstreamTurn, client: Any, **form: Any) -> Pipe:
    return turn.make_pipe(CLIENT_DIALECTS[client].events_from_hub(turn.prepared.request, **form))


def _finished(work: Any) -> Response:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        response: Response = end.value
        return response
    raise AssertionError("it waits for something")
