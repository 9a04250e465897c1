"""Signals and deaths of gateway processes: a forced stop ends every stream, workers end with their supervisor, and SIGHUP
ends nothing. The gateways are real processes."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx2
import pytest
from tests.ops.served_process import START, gateway
from tests.running import BOUND, one_upstream, until

from antiphon import testing
from antiphon.config import Config, UpstreamConfig
from antiphon.testing import ChatServer, Gate, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_quick", [False, True], ids=["later", "at once"])
def test_second_signal_ends_every_stream_with_one_terminal_event(
    workers: int, how: signal.Signals, is_quick: bool
) -> None:
    gates = [Gate() for _ in range(6)]
    answers: list[httpx2.Response] = []
    turns = [turn(testing.text("Hel"), testing.wait(gate), testing.text("lo.")) for gate in gates]
    with ChatServer(turns) as upstream:
        with gateway(one_upstream(upstream.base_url), grace=100, workers=workers) as served:
            until(lambda: workers == 1 or len(served.workers()) == workers, START)
            clients = [threading.Thread(target=lambda: answers.append(served.post(stream=True))) for _ in gates]
            for client in clients:
                client.start()
            for gate in gates:
                gate.wait_reached()
            begin = time.monotonic()
            served.process.send_signal(how)
            if is_quick:  # two signals of one kind that follow at once are one signal
                served.process.send_signal(signal.SIGTERM if how == signal.SIGINT else signal.SIGINT)
            else:
                until(lambda: is_refused(served.url))
                served.process.send_signal(how)
            served.process.wait(START)
            for client in clients:
                client.join(BOUND)
            for gate in gates:
                gate.open()
    assert time.monotonic() - begin < START
    assert len(answers) == len(gates)
    for answer in answers:
        ends = [line for line in answer.text.splitlines() if line.startswith("event: response.failed")]
        assert len(ends) == 1, answer.text
        assert "server_shutdown" in answer.text


def test_workers_end_when_their_supervisor_is_killed() -> None:
    gate = Gate()
    answers: list[httpx2.Response] = []
    with ChatServer([turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]) as upstream:
        with gateway(one_upstream(upstream.base_url), workers=2, grace=100) as served:
            until(lambda: len(served.workers()) == 2, START)
            client = threading.Thread(target=lambda: answers.append(served.post(stream=True)))
            client.start()
            gate.wait_reached()
            workers = served.workers()
            served.process.kill()
            until(lambda: not any(is_running(pid) for pid in workers))
            client.join(BOUND)
            gate.open()
    assert "event: response.failed" in answers[0].text


def test_embedded_model_ends_when_the_supervisor_is_killed() -> None:
    upstream = UpstreamConfig(name="local", dialect="chat", embedded=True)
    with gateway(Config(upstreams=[upstream]), workers=2) as served:
        until(lambda: len(served.workers()) == 2, START)
        children = served.children()
        assert len(children - served.workers()) >= 1
        served.process.kill()
        until(lambda: not any(is_running(pid) for pid in children))


@pytest.mark.parametrize("workers", [1, 2])
def test_hangup_ends_no_process(workers: int) -> None:
    with ChatServer() as upstream, gateway(one_upstream(upstream.base_url), workers=workers) as served:
        # Each process has its own connections, so this waits until all of them have answered.
        until(lambda: served.post().status_code == 200 and upstream.open_connections == workers, START)
        processes = {served.process.pid, *served.workers()}
        for pid in processes:
            os.kill(pid, signal.SIGHUP)
        assert served.post().status_code == 200
        assert processes == {served.process.pid, *served.workers()}
        until(lambda: sum("SIGHUP was ignored" in line["event"] for line in served.log) >= len(processes), START)
        served.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_port_stays_open_for_the_shutdown_delay(workers: int) -> None:
    """After the signal the gateway is not ready, but serves new connections, until the delay or a second signal."""
    with (
        ChatServer() as upstream,
        gateway(one_upstream(upstream.base_url), workers=workers, shutdown_delay=60) as served,
    ):
        until(lambda: served.post().status_code == 200 and upstream.open_connections == workers, START)
        assert served.get("/readyz").status_code == 200
        served.process.send_signal(signal.SIGTERM)
        until(lambda: all(served.get("/readyz").status_code == 503 for _ in range(10)), START)
        assert served.get("/livez").status_code == 200
        assert served.post().status_code == 200
        assert "over" in served.stop()  # the second signal ends the delay
        assert is_refused(served.url)


def test_port_is_closed_after_the_shutdown_delay() -> None:
    with ChatServer() as upstream, gateway(one_upstream(upstream.base_url), shutdown_delay=0.5) as served:
        assert served.post().status_code == 200
        began = time.monotonic()
        assert "over" in served.stop()
        assert time.monotonic() - began > 0.5
        assert is_refused(served.url)


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_refused(url: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=BOUND).close()
    except ConnectionError:
        return True
    return False
