"""Damage over sockets: bodies into a running gateway, and the bytes of its upstreams' answers, framing included.

Every answer is a 200 or an error in our shape; no error is internal; nothing hangs; afterwards the gateway works as
before (invariants 1, 3, 4 and 6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from random import Random
from typing import Any

import msgspec
import pytest
from tests.fuzz import answer_checks, corpus
from tests.fuzz.cases import BATCH, batches, case
from tests.fuzz.mutate import damaged_bytes, damaged_json, pieces
from tests.running import BOUND, Running, one_upstream, running, until

from antiphon import testing
from antiphon.config import Timeouts
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, OllamaServer, Reply, ResponsesServer, turn
from antiphon.testing.harness import FakeServer
from antiphon.upstream.http import HttpTransport

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HELLO = turn(testing.text("Hel", "lo."))
KINDS: dict[str, Any] = {
    "chat": ChatServer,
    "responses": ResponsesServer,
    "messages": MessagesServer,
    "gemini": GeminiServer,
    "ollama": OllamaServer,
}
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
# The other side always closes in the end, so no request should take this long.
TIMEOUTS = Timeouts(first_byte=10, idle=10, total=15)


@batches(4)
def test_damaged_body_is_answered_or_refused(batch: range) -> None:
    """The upstream is strict, and its refusals are passed to the client, so that even these are a 4xx (ERR-4)."""
    with ChatServer(lambda _: HELLO) as upstream, asked(upstream.base_url) as client:
        for number in batch:
            with case(number) as chance:
                answer = client.post(damaged_json(chance.choice(list(corpus.BODIES.values())), chance))
                check("responses", *answer)
                assert answer[0] < 500, answer
        client.settle(upstream)


@batches(4)
def test_damaged_body_of_another_dialect_is_answered_or_refused_in_its_form(batch: range) -> None:
    """The same for clients of other dialects, each at its own path; before a strict server of any other dialect than
    the hub's (ERR-1)."""
    kinds = [(dialect, kind) for dialect, kind in KINDS.items() if dialect != "responses"]
    upstream_dialect, kind = kinds[batch.start // BATCH % len(kinds)]
    with kind(lambda _: HELLO) as upstream, asked(upstream.base_url, upstream_dialect) as client:
        for number in batch:
            with case(number) as chance:
                source, body = chance.choice(list(corpus.OTHER_BODIES.items()))
                path = chance.choice(corpus.paths_of(source))
                answer = client.post(damaged_json(body, chance), path)
                check(source[0], *answer)
                assert answer[0] < 500 or answer[0] == 529, answer
        client.settle(upstream)


@pytest.mark.parametrize("dialect", corpus.DIALECTS)
@batches(2)
def test_damaged_upstream_bytes_give_an_answer_in_the_form_of_the_client(dialect: str, batch: range) -> None:
    replies: list[Reply] = [HELLO]
    with KINDS[dialect](lambda _: replies[-1], strict=False) as upstream, asked(upstream.base_url, dialect) as client:
        for number in batch:
            with case(number) as chance:
                wire = damaged_wire(dialect, chance)
                replies.append(
                    testing.exactly(*pieces(wire, chance), testing.end(chance.choice(("fin", "fin", "rst"))))
                )
                wants_stream = chance.random() < 0.7
                client_dialect = chance.choice(corpus.DIALECTS)
                answer = client.post(
                    question(client_dialect, stream=wants_stream), corpus.PATHS[client_dialect][wants_stream]
                )
                check(client_dialect, *answer)
                assert answer[0] != 504, "it waited for something"
        replies.append(HELLO)
        client.settle(upstream)


def question(dialect: str, *, stream: bool) -> dict[str, Any]:
    """The simplest request of a dialect."""
    messages = [{"role": "user", "content": "Hi"}]
    match dialect:
        case "responses":
            return {"model": "mock-1", "input": "Hi", "stream": stream}
        case "gemini":
            return {"contents": [{"parts": [{"text": "Hi"}]}]}
        case "ollama":
            return {"model": "mock-1", "messages": messages, "stream": stream}
        case _:
            return {"model": "mock-1", "max_tokens": 100, "messages": messages, "stream": stream}


def damaged_wire(dialect: str, chance: Random) -> bytes:
    """An answer on the wire, with damage in its body or anywhere."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n" % corpus.stream_type(dialect).encode()
    chunked_head = head + b"transfer-encoding: chunked\r\n\r\n"
    match chance.randrange(4):
        case 0:
            return PLAIN_HEAD + damaged_json(chance.choice(corpus.answers(dialect)), chance)
        case 1:
            return head + b"\r\n" + corpus.damaged_stream_of(dialect, chance)
        case 2:
            return chunked_head + _chunked(corpus.damaged_stream_of(dialect, chance), chance)
        case _:
            return damaged_bytes(chunked_head + _chunked(chance.choice(corpus.streams(dialect)), chance), chance)


def _chunked(body: bytes, chance: Random) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces(body, chance) if piece) + b"0\r\n\r\n"


def check(dialect: str, status: int, headers: dict[str, str], body: bytes) -> None:
    """Invariants 1 and 3."""
    assert headers["x-request-id"]
    if status != 200:
        answer_checks.check_error(dialect, status, body)
    elif headers["content-type"].startswith(("text/event-stream", "application/x-ndjson")):
        answer_checks.check_stream(dialect, body)
    else:
        answer_checks.check_whole(dialect, body)


class Client:
    """A client that keeps its connection as long as the gateway does."""

    def __init__(self, gateway: Running, network: HttpTransport) -> None:
        self._network = network
        self._connection = HTTPConnection("127.0.0.1", gateway.port, timeout=BOUND)

    def post(self, body: dict[str, Any] | bytes, path: str = "/v1/responses") -> tuple[int, dict[str, str], bytes]:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self._connection.request("POST", path, content, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def settle(self, upstream: FakeServer) -> None:
        """Invariants 4 and 6."""
        status, _, body = self.post({"model": "mock-1", "input": "Hi"})
        assert (status, msgspec.json.decode(body)["status"]) == (200, "completed")
        upstream.wait_idle()
        until(lambda: self._network.connections_in_use == 0)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def asked(base_url: str, dialect: Any = "chat") -> Iterator[Client]:
    """A gateway in debug mode, which checks its own output: see `running` for the checks at the end."""
    network = HttpTransport({})
    config = one_upstream(base_url, dialect=dialect, timeouts=TIMEOUTS)
    # Unknown types are passed through unchanged (ITEM-5), and so is output that cannot be normalized, even where the
    # grammar reports it (STR-4).
    condoned = {"ITEM-5", "STR-4"} if dialect == "responses" else ()
    with running(config, transport=network, condoned=condoned) as gateway:
        client = Client(gateway, network)
        try:
            yield client
        finally:
            client.close()
