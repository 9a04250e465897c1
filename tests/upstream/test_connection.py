"""A connection in states that a real socket seldom reaches."""

from __future__ import annotations

import asyncio

import pytest
from tests.upstream.scripted import Wire, pass_time, with_turned_clock

from antiphon.errors import UpstreamFault
from antiphon.upstream.connection import WRITE_SIZE
from antiphon.upstream.tls import trusted_context

pytestmark = pytest.mark.without_coverage


def test_connection_closed_while_idle_fails_the_next_handshake() -> None:
    async def work() -> None:
        wire = Wire()
        wire.connection.eof_received()
        with pytest.raises(UpstreamFault, match="closed the connection during the TLS handshake"):
            await wire.connection.start_tls(trusted_context(), "model.example")
        assert wire.written == b""

    asyncio.run(work())


def test_bytes_for_a_cancelled_handshake_are_ignored() -> None:
    async def work() -> None:
        wire = Wire()
        securing = asyncio.create_task(wire.connection.start_tls(trusted_context(), "model.example"))
        await asyncio.sleep(0)
        assert wire.written[:1] == b"\x16"
        securing.cancel()
        wire.deliver(b"anything")
        wire.connection.eof_received()
        with pytest.raises(asyncio.CancelledError):
            await securing

    asyncio.run(work())


def test_connection_lost_before_it_was_made_is_aborted() -> None:
    wire = Wire()
    wire.connection.connection_lost(None)
    assert wire.lost
    wire.connection.connection_made(wire)
    assert wire.aborted


def test_large_data_is_written_in_parts_while_the_other_side_reads() -> None:
    """Others are served between two parts: TLS takes long for a large body."""
    data = bytes(range(256)) * (3 * WRITE_SIZE // 256) + b"end"

    async def work() -> None:
        wire = Wire()
        wire.connection.write(b"head")
        wire.connection.write(data)
        wire.connection.write(b"next")
        assert not wire.connection.has_sent_all
        await asyncio.sleep(0)
        assert len(wire.written) == len(b"head") + WRITE_SIZE
        wire.connection.pause_writing()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(wire.written) == len(b"head") + WRITE_SIZE
        wire.connection.resume_writing()
        for _ in range(5):
            await asyncio.sleep(0)
        assert wire.written == b"head" + data + b"next"
        assert wire.connection.has_sent_all

    asyncio.run(work())


def test_unwritten_data_of_a_dropped_connection_is_discarded() -> None:
    async def work() -> None:
        wire = Wire()
        wire.connection.write(bytes(3 * WRITE_SIZE))
        await asyncio.sleep(0)
        wire.connection.drop()
        wire.connection.write(bytes(3 * WRITE_SIZE))
        wire.connection.resume_writing()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(wire.written) == WRITE_SIZE

    asyncio.run(work())


def test_timer_serves_several_exchanges() -> None:
    """A new exchange keeps a timer that ends earlier; a check that comes too early sets another."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        connection, checks = Wire().connection, list[str]()
        start = loop.time()
        connection.check_at(start + 10, lambda: checks.append("first"), loop)
        connection.stop_checks()
        await pass_time(8)
        connection.check_at(start + 18, lambda: checks.append("second"), loop)
        await pass_time(3)
        assert checks == ["second"]
        connection.check_at(start + 18, lambda: checks.append("third"), loop)
        connection.check_at(start + 15, lambda: checks.append("earlier"), loop)
        await pass_time(5)
        assert checks == ["second", "earlier"]
        connection.check_at(start + 20, lambda: checks.append("never"), loop)
        connection.stop_checks()
        await pass_time(10)
        assert checks == ["second", "earlier"]
        assert timers_of(loop) == []

    with_turned_clock(work)


def test_dropped_connection_has_no_timer() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        connection, checks = Wire().connection, list[str]()
        connection.check_at(loop.time() + 10, lambda: checks.append("first"), loop)
        connection.drop()
        connection.check_at(loop.time() + 10, lambda: checks.append("second"), loop)
        assert timers_of(loop) == []
        await pass_time(20)
        assert checks == []

    with_turned_clock(work)


def timers_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.TimerHandle]:
    return [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
