"""The identity law over sockets: the same as `test_identity`, with a real gateway, a real server and few cases."""

from __future__ import annotations

import pytest
from tests.identity.allowed import find_allowed
from tests.identity.law import compare_case, upstream_answer
from tests.identity.source import MODEL, Source
from tests.identity.sources import SOURCES
from tests.recorded_traffic.play import PATHS
from tests.recorded_traffic.run import DEFAULTS
from tests.running import one_upstream, running

from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.testing import FakeServer, ReceivedRequest, Reply, exactly
from antiphon.testing.script import PlainReply, ScriptedTurn, Step

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
COUNT = 12


class _AnyRequest:
    """Behavior without rules: requests contain members that nobody knows."""

    def answer_other_path(self, request: ReceivedRequest) -> PlainReply | None:
        return PlainReply(status=404, body=b"{}") if request.method == "GET" else None

    def find_refusal(self, request: ReceivedRequest) -> PlainReply | None:  # noqa: ARG002
        return None

    def improvise(self, request: ReceivedRequest) -> ScriptedTurn:
        raise NotImplementedError

    def wants_stream(self, request: ReceivedRequest) -> bool:
        raise NotImplementedError

    def render_stream(self, turn: ScriptedTurn, request: ReceivedRequest) -> list[Step]:
        raise NotImplementedError

    def render_body(self, turn: ScriptedTurn, request: ReceivedRequest) -> bytes:
        raise NotImplementedError


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_everything_arrives_as_it_was_sent(source: Source) -> None:
    generator = source.generator(1)
    cases = [source.make_case(generator, bool(number % 2)) for number in range(COUNT)]
    replies = [_reply(source, case.answer, bool(number % 2)) for number, case in enumerate(cases)]
    differences = []
    with FakeServer(_AnyRequest(), replies) as server:
        config = one_upstream(_base_url(source, server), dialect=source.dialect, profile=DEFAULTS[source.dialect])
        with running(config, condoned=CONDONED) as gateway:
            for number, case in enumerate(cases):
                answer = gateway.post(case.request, _path(source, bool(number % 2)))
                sent = [request.body for request in server.received if request.method == "POST"][number:]
                differences += compare_case(source.expect(case), number, sent, answer.status_code, answer.content)
    found = [each for each in differences if find_allowed(source.dialect, each.direction, each.delta) is None]
    assert found == []


def _reply(source: Source, events: list[dict[str, object]], is_stream: bool) -> Reply:
    """The answer in pieces of an odd size."""
    answer = upstream_answer(source.dialect, events, is_stream)
    body = b"".join(answer.pieces)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {answer.headers['content-type']}\r\ncontent-length: {len(body)}\r\n\r\n"
    return exactly(head.encode(), *(body[start : start + 999] for start in range(0, len(body), 999)))


def _base_url(source: Source, server: FakeServer) -> str:
    return server.origin if source.dialect == "ollama" else f"{server.origin}/v1"


def _path(source: Source, is_stream: bool) -> str:
    if not SERVER_DIALECTS[source.dialect].has_model_in_path:
        return PATHS[source.dialect]
    return f"/v1beta/models/{MODEL}:{'streamGenerateContent?alt=sse' if is_stream else 'generateContent'}"


#: Rows of the grammar that servers may violate: their events pass as they are.
CONDONED = ("ITEM-5",)
