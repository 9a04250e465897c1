"""`Client`: the blocking API, used from any number of threads (B-9)."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.client.conversing import client_of

from antiphon import testing
from antiphon.client import Client
from antiphon.errors import UpstreamFault
from antiphon.testing import ChatServer, Gate, ResponsesServer, turn

pytestmark = pytest.mark.io
HELLO = turn(testing.text("Hel", "lo."))


def test_client_is_thread_safe() -> None:
    with ResponsesServer() as server, client_of(server.base_url) as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: client.create(f"Number {number}.").output_text, range(32)))
    assert answers == [f"You said: Number {number}." for number in range(32)]


def test_stream_texts_arrive_one_by_one() -> None:
    gate = Gate()
    with ResponsesServer([turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]) as server:
        with client_of(server.base_url) as client, client.stream("Hi.") as stream:
            pieces = stream.texts()
            assert next(pieces) == "Hel"
            assert stream.text == "Hel"
            gate.open()
            assert list(pieces) == ["lo."]
            assert stream.error is None
            assert len(stream.losses) == 0


def test_stream_failure_is_raised_after_its_text() -> None:
    with (
        ResponsesServer([turn(testing.text("Hel"), testing.end("rst"))]) as server,
        client_of(server.base_url) as client,
    ):
        pieces = client.stream("Hi.").texts()
        assert next(pieces) == "Hel"
        with pytest.raises(UpstreamFault):
            next(pieces)


def test_client_works_inside_a_running_event_loop() -> None:
    """For example in a notebook."""

    async def cell(url: str) -> str:
        with client_of(url) as client:
            return client.create("Hi.").output_text

    with ChatServer() as server:
        with client_of(server.base_url, dialect="chat") as client:
            assert client.create("Hi.").output_text == "You said: Hi."
    with ResponsesServer() as other:
        assert asyncio.run(cell(other.base_url)) == "You said: Hi."


def test_interrupted_call_disconnects_from_the_server() -> None:
    gate, has_struck = Gate(), threading.Event()
    with ResponsesServer([turn(testing.wait(gate))]) as server, client_of(server.base_url) as client:

        class Interrupted(BaseException):
            pass

        def interrupt(_number: int, _frame: object) -> None:
            if not has_struck.is_set():
                has_struck.set()
                raise Interrupted

        before = signal.signal(signal.SIGUSR1, interrupt)
        try:
            waiter = threading.Thread(target=strike, args=(gate, threading.get_ident(), has_struck))
            waiter.start()
            with pytest.raises(Interrupted):
                client.create("Hi.")
            waiter.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        server.wait_disconnected()
        gate.open()


def strike(gate: Gate, thread: int, has_struck: threading.Event) -> None:
    """Interrupts a thread once the server has its request. A signal that comes just before the thread begins to wait
    for a lock does not interrupt it, so it is sent until it does."""
    gate.wait_reached()
    for _ in range(600):
        signal.pthread_kill(thread, signal.SIGUSR1)
        if has_struck.wait(0.05):
            return


def test_client_can_be_closed_twice_and_before_use() -> None:
    client = client_of("http://127.0.0.1:9")
    client.close()
    client.close()
    threads = {thread.name for thread in threading.enumerate()}
    assert "antiphon-client" not in threads
    with ResponsesServer([HELLO]) as server, Client(server.base_url, model="mock-1", environ={}) as used:
        used.create("Hi.")
        used.close()
    assert "antiphon-client" not in {thread.name for thread in threading.enumerate()}
