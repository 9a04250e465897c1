"""Reading a bounded body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.gateway.scripted import ScriptedAnswer
from tests.upstream.scripted import OK, Wire

from antiphon.errors import UpstreamFault
from antiphon.upstream.body import BodyTooLarge, read_body, read_partial_body
from antiphon.upstream.transport import flow_of_pieces

FAULT = UpstreamFault("gone", code="upstream_disconnected")


class CountingAnswer(ScriptedAnswer):
    """An answer that counts calls of `abort`."""

    aborts = 0

    def abort(self) -> None:
        self.aborts += 1


def test_read_body_joins_the_pieces() -> None:
    answer = CountingAnswer([b"a", b"b"], {})
    assert asyncio.run(read_body(answer, 2)) == b"ab"
    assert answer.aborts == 0
    assert asyncio.run(read_body(CountingAnswer([], {}), 0)) == b""


def test_read_body_refuses_a_body_above_the_limit() -> None:
    answer = CountingAnswer([b"a", b"b", b"c"], {})
    with pytest.raises(BodyTooLarge, match="the upstream's answer is too large: expected at most 1 bytes") as caught:
        asyncio.run(read_body(answer, 1))
    assert (caught.value.code, caught.value.status, answer.aborts) == ("upstream_invalid_response", 502, 1)


def test_read_body_raises_the_fault_of_a_piece() -> None:
    answer = CountingAnswer([b"a", FAULT], {})
    with pytest.raises(UpstreamFault, match="gone"):
        asyncio.run(read_body(answer, 9))
    assert answer.aborts == 1


def test_read_body_reads_the_flow_that_the_caller_observes() -> None:
    async def work() -> bytes:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"observed"

        return await read_body(CountingAnswer([b"a"], {}), 9, flow_of_pieces(pieces()))

    assert asyncio.run(work()) == b"observed"


def test_read_body_takes_a_body_that_arrived_with_the_head() -> None:
    async def work() -> bytes:
        answer = (wire := Wire()).answer()
        wire.deliver(OK)
        return await read_body(answer, 100)

    assert asyncio.run(work())


def test_read_body_aborts_the_exchange_if_it_is_cancelled() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer()
        wire.deliver(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab")
        task = asyncio.create_task(read_body(answer, 100))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(UpstreamFault, match="the gateway aborted the exchange"):
            await read_body(answer, 100)

    asyncio.run(work())


def test_read_partial_body_returns_what_was_received_before_a_fault() -> None:
    body = asyncio.run(read_partial_body(CountingAnswer([b"a", b"b", FAULT], {}), 9))
    assert (body.data, body.fault and body.fault.code) == (b"ab", "upstream_disconnected")


def test_read_partial_body_stops_soon_after_the_limit() -> None:
    answer = CountingAnswer([b"ab", b"cd", b"ef"], {})
    body = asyncio.run(read_partial_body(answer, 3))
    assert (body.data, type(body.fault), answer.aborts) == (b"abcd", BodyTooLarge, 1)


def test_read_partial_body_has_no_fault_if_complete() -> None:
    assert asyncio.run(read_partial_body(CountingAnswer([b"ab"], {}), 2)) == (b"ab", None)
