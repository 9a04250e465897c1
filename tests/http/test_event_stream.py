"""The event streams of `http/exchange`: HTTP-7 without sockets. Times are short because they are parameters; durations are
not asserted."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.scripted import ScriptedTransport

from antiphon.config import Config, StoreConfig
from antiphon.dialects.dialect import KEEPALIVE_COMMENT
from antiphon.http.exchange import EventStream
from antiphon.ops.logger import Logger
from antiphon.ops.services import FIRST_BYTE_TIMEOUT, KEEPALIVE_INTERVAL, Services

pytestmark = pytest.mark.without_coverage
LONG = 1000.0


class Client:
    """Stores the sent messages, and may stop reading."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.came = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.append("head" if message["type"] == "http.response.start" else message["body"])
        if message.get("more_body") is False:
            self.sent.append("end")
        self.came.set()

    def send_now(self, message: Any) -> bool:
        """The direct write of our own server; it fails while this client does not read."""
        if not self.reads.is_set():
            return False
        assert message["type"] == "http.response.start"
        self.sent.append("head")
        return True

    def write_now(self, data: bytes) -> bool:
        if not self.reads.is_set():
            return False
        self.sent.append(data)
        self.came.set()
        return True

    async def until(self, count: int) -> None:
        while len(self.sent) < count:
            self.came.clear()
            await self.came.wait()


def stream_to(client: Client, first: float = LONG, silence: float = LONG) -> EventStream:
    return EventStream(client.send, lambda: [], first_byte_timeout=first, keepalive_interval=silence)


def direct_stream_to(client: Client, first: float = LONG, silence: float = LONG) -> EventStream:
    """With our own server."""
    return EventStream(
        client.send,
        lambda: [],
        first_byte_timeout=first,
        keepalive_interval=silence,
        send_now=client.send_now,
        write_now=client.write_now,
    )


def test_head_is_sent_with_the_first_bytes() -> None:
    """HTTP-7."""

    async def play() -> list[Any]:
        client = Client()
        stream = stream_to(client)
        assert not stream.has_started
        await stream.write(b"a")
        await stream.write(b"b")
        await stream.end(b"c")
        assert stream.has_ended
        return client.sent

    assert asyncio.run(play()) == ["head", b"a", b"b", b"c", "end"]


def test_stream_may_consist_of_its_end() -> None:
    async def play() -> list[Any]:
        client = Client()
        await stream_to(client).end(b"all")
        return client.sent

    assert asyncio.run(play()) == ["head", b"all", "end"]


def test_head_and_comments_are_sent_during_silence() -> None:
    """HTTP-7: at most 10 s; then comments, never invented events."""

    async def play() -> list[Any]:
        client = Client()
        stream = stream_to(client, first=0.001, silence=0.001)
        await client.until(4)
        assert stream.has_started
        await stream.end(b"end")
        sent = len(client.sent)
        await asyncio.sleep(0.01)
        assert len(client.sent) == sent  # no comment after the end
        return client.sent

    sent = asyncio.run(play())
    assert sent[:4] == ["head", KEEPALIVE_COMMENT, KEEPALIVE_COMMENT, KEEPALIVE_COMMENT]
    assert sent[-2:] == [b"end", "end"]


def test_default_timeouts_are_10_and_15_seconds() -> None:
    """HTTP-7: what `serve` uses."""
    assert (FIRST_BYTE_TIMEOUT, KEEPALIVE_INTERVAL) == (10.0, 15.0)
    assert (
        Services(
            Config(store=StoreConfig(url="off")), {}, ScriptedTransport(), Logger(io.StringIO())
        ).first_byte_timeout
        == FIRST_BYTE_TIMEOUT
    )


def test_comments_are_sent_only_during_silence() -> None:
    async def play() -> list[Any]:
        client = Client()
        stream = stream_to(client, first=0.001, silence=LONG)
        await stream.write(b"a")
        await asyncio.sleep(0.01)  # the timer of the head fires, and there is nothing to do
        stream.close()
        return client.sent

    assert asyncio.run(play()) == ["head", b"a"]


def test_client_that_does_not_read_gets_one_comment_and_then_the_data() -> None:
    async def play() -> list[Any]:
        client = Client()
        client.reads.clear()
        stream = stream_to(client, first=0.001, silence=0.001)
        await asyncio.sleep(0.02)
        writing = asyncio.ensure_future(stream.write(b"a"))
        await asyncio.sleep(0)
        client.reads.set()
        await writing
        await stream.end(b"b")
        return client.sent

    sent = asyncio.run(play())
    assert sent == ["head", KEEPALIVE_COMMENT, b"a", b"b", "end"]


def test_try_write_sends_at_once_after_the_head() -> None:
    async def play() -> list[Any]:
        client = Client()
        stream = direct_stream_to(client)
        assert stream.try_write(b"a")
        assert client.sent == ["head", b"a"]
        assert stream.try_write(b"b")
        await stream.end(b"c")
        return client.sent

    assert asyncio.run(play()) == ["head", b"a", b"b", b"c", "end"]


def test_try_write_is_refused_on_other_servers() -> None:
    async def play() -> list[Any]:
        client = Client()
        stream = stream_to(client)
        assert not stream.try_write(b"a")
        await stream.write(b"a")
        assert not stream.try_write(b"b")
        stream.close()
        return client.sent

    assert asyncio.run(play()) == ["head", b"a"]


def test_try_write_is_refused_while_the_client_does_not_read() -> None:
    async def play() -> list[Any]:
        client = Client()
        stream = direct_stream_to(client)
        client.reads.clear()
        assert not stream.try_write(b"a")
        assert not stream.has_started
        client.reads.set()
        assert stream.try_write(b"a")
        client.reads.clear()
        assert not stream.try_write(b"b")
        writing = asyncio.ensure_future(stream.write(b"b"))
        client.reads.set()
        await writing
        stream.close()
        return client.sent

    assert asyncio.run(play()) == ["head", b"a", b"b"]


def test_comments_do_not_interrupt_a_write() -> None:
    """HTTP-7, with our own server: while a comment waits for a client that does not read, direct writes are refused."""

    async def play() -> list[Any]:
        client = Client()
        stream = direct_stream_to(client, first=0.001, silence=0.001)
        await client.until(3)
        assert client.sent[:3] == ["head", KEEPALIVE_COMMENT, KEEPALIVE_COMMENT]
        client.reads.clear()
        client.sent.clear()
        while stream._keepalive_task is None:
            await asyncio.sleep(0.001)
        client.reads.set()
        assert not stream.try_write(b"a")
        await stream.write(b"a")
        stream.close()
        return client.sent

    assert asyncio.run(play()) == [KEEPALIVE_COMMENT, b"a"]


@pytest.mark.parametrize("make_stream", [stream_to, direct_stream_to])
def test_comment_that_waits_to_be_sent_is_dropped_when_the_stream_closes(
    make_stream: Callable[[Client, float, float], EventStream],
) -> None:
    """An error that ends the request before the first byte is answered with a head of its own."""

    async def play() -> list[Any]:
        client = Client()
        client.reads.clear()
        stream = make_stream(client, LONG, LONG)
        stream._on_timer()
        assert stream._keepalive_task is not None
        stream.close()
        client.reads.set()
        await stream._keepalive_task
        return client.sent

    assert asyncio.run(play()) == []


def test_comment_is_dropped_when_the_stream_closes_during_its_head() -> None:
    async def play() -> list[Any]:
        client = Client()
        client.reads.clear()
        stream = stream_to(client)
        stream._on_timer()
        comment = stream._keepalive_task
        assert comment is not None
        await asyncio.sleep(0)  # the head waits for the client
        assert stream.has_started
        stream.close()
        client.reads.set()
        await comment
        return client.sent

    assert asyncio.run(play()) == ["head"]
