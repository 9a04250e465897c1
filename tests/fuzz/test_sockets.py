"""Damage over sockets: bodies into a running gateway, and the bytes that its upstreams answer with, framing and all.

Every answer is a 200 or an error in our shape; no error is ours; nothing hangs; afterwards the gateway is as good as before
(invariants 1, 3, 4 and 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from random import Random
from typing import Any

import msgspec
import pytest
from tests.fuzz import corpus
from tests.fuzz.cases import batches, case
from tests.fuzz.mutate import damaged_bytes, damaged_json, damaged_stream, pieces
from tests.running import BOUND, Running, one_upstream, running, until

from antiphon import fakes, sse
from antiphon.config import Timeouts
from antiphon.fakes import ChatServer, Received, Reply, ResponsesServer, turn
from antiphon.upstream.http import HttpTransport

HELLO = turn(fakes.text("Hel", "lo."))
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
# The other side always closes in the end: nothing should take so long.
TIMEOUTS = Timeouts(first_byte=10, idle=10, total=15)


@batches(8)
def test_a_damaged_body_is_answered_or_refused(batch: range) -> None:
    """The upstream is as strict as they come: what it refuses is the client's to know, so that even this is a 4xx (ERR-4)."""
    with ChatServer(lambda _: HELLO) as upstream, asked(upstream.base_url) as client:
        for number in batch:
            with case(number) as chance:
                status, headers, body = client.post(damaged_json(chance.choice(list(corpus.BODIES.values())), chance))
                check(status, headers, body)
                assert status < 500, body
        client.settle(upstream)


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@batches(4)
def test_damaged_bytes_of_an_upstream_are_told_in_our_shape(dialect: str, batch: range) -> None:
    upstream_kind = ChatServer if dialect == "chat" else ResponsesServer
    replies: dict[str, Reply] = {"settled": HELLO}

    def reply(received: Received) -> Reply:
        return replies[received.json["model"]]

    with upstream_kind(reply, strict=False) as upstream, asked(upstream.base_url, dialect=dialect) as client:
        for number in batch:
            with case(number) as chance:
                wire = damaged_wire(dialect, chance)
                replies[f"case-{number}"] = fakes.exactly(*pieces(wire, chance), fakes.end(chance.choice(("fin", "fin", "rst"))))
                wants_stream = chance.random() < 0.7
                status, headers, body = client.post({"model": f"case-{number}", "input": "Hi", "stream": wants_stream})
                check(status, headers, body)
                assert status != 504, "it waited for something"
        client.settle(upstream)


def damaged_wire(dialect: str, chance: Random) -> bytes:
    """An answer as it comes over the wire, with damage in its body or anywhere."""
    match chance.randrange(4):
        case 0:
            return PLAIN_HEAD + damaged_json(chance.choice(corpus.answers(dialect)), chance)
        case 1:
            return fakes.SSE_HEAD + damaged_stream(chance.choice(corpus.streams(dialect)), chance)
        case 2:
            return CHUNKED_HEAD + _chunked(damaged_stream(chance.choice(corpus.streams(dialect)), chance), chance)
        case _:
            return damaged_bytes(CHUNKED_HEAD + _chunked(chance.choice(corpus.streams(dialect)), chance), chance)


def _chunked(body: bytes, chance: Random) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces(body, chance) if piece) + b"0\r\n\r\n"


def check(status: int, headers: dict[str, str], body: bytes) -> None:
    """Invariants 1 and 3."""
    assert headers["x-request-id"]
    if status != 200:
        check_error(status, body)
    elif headers["content-type"].startswith("text/event-stream"):
        frames = sse.Decoder().feed(body)
        assert frames[-1].data == sse.DONE
        assert [frame.event for frame in frames if frame.event in TERMINAL] == [frames[-2].event]
        assert b"internal_error" not in frames[-2].data
    else:
        assert msgspec.json.decode(body)["status"] in ("completed", "incomplete", "failed")


def check_error(status: int, body: bytes) -> None:
    told = msgspec.json.decode(body)
    assert set(told) == {"error"}
    assert set(told["error"]) == {"message", "type", "code", "param"}
    assert 400 <= status < 600
    assert len(body) < 4000, "an error that long is an echo"
    assert told["error"]["code"] != "internal_error"


class Client:
    """One that keeps its connection as long as the gateway does."""

    def __init__(self, gateway: Running, network: HttpTransport) -> None:
        self._network = network
        self._connection = HTTPConnection("127.0.0.1", gateway.port, timeout=BOUND)

    def post(self, body: dict[str, Any] | bytes) -> tuple[int, dict[str, str], bytes]:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self._connection.request("POST", "/v1/responses", content, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def settle(self, upstream: ChatServer | ResponsesServer) -> None:
        """Invariants 4 and 6."""
        status, _, body = self.post({"model": "settled", "input": "Hi"})
        assert (status, msgspec.json.decode(body)["status"]) == (200, "completed")
        upstream.wait_idle()
        until(lambda: self._network.connections_in_use == 0)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def asked(base_url: str, dialect: Any = "chat") -> Iterator[Client]:
    """A gateway in debug mode, which judges its own output: see `running` for what is checked at the end."""
    network = HttpTransport({})
    config = one_upstream(base_url, dialect=dialect, timeouts=TIMEOUTS)
    # What nobody knows is carried as it came (ITEM-5), and so is what cannot be mended, also where no judge likes it (STR-4).
    condoned = {"ITEM-5", "STR-4"} if dialect == "responses" else ()
    with running(config, transport=network, condoned=condoned) as gateway:
        client = Client(gateway, network)
        try:
            yield client
        finally:
            client.close()
