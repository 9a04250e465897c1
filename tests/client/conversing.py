"""What tests of the client share: a gateway over a scripted server, a client that does not wait, and a link that
breaks."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import uvloop
from tests.running import Running, one_upstream, running

from antiphon.client import AsyncClient, Client, Retries
from antiphon.config import StoreConfig, Timeouts
from antiphon.testing import ChatServer
from antiphon.testing.script import Script

T = TypeVar("T")


class Sleeps:
    """Takes no time, and knows how long it should have taken."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)

    def retries(self, times: int = 2, **settings: Any) -> Retries:
        return Retries(times=times, sleep=self, **settings)


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def client_of(url: str, **settings: Any) -> Client:
    """A client that tries nothing twice unless it is told to."""
    return Client(url, **{"model": "mock-1", "retries": Retries(times=0), "environ": {}, **settings})


def async_client_of(url: str, **settings: Any) -> AsyncClient:
    return AsyncClient(url, **{"model": "mock-1", "retries": Retries(times=0), "environ": {}, **settings})


def asked(url: str, work: Callable[[AsyncClient], Coroutine[Any, Any, T]], **settings: Any) -> T:
    """What `work` makes of a client."""

    async def whole() -> T:
        async with async_client_of(url, **settings) as client:
            return await work(client)

    return run(whole())


@contextmanager
def gateway(script: Script | None = None, *, store: str = "off", timeouts: Timeouts | None = None) -> Iterator[Running]:
    """A gateway over a chat server."""
    with ChatServer(script) as upstream:
        config = one_upstream(upstream.base_url, timeouts=timeouts)
        config = type(config)(upstreams=config.upstreams, timeouts=config.timeouts, store=StoreConfig(url=store))
        with running(config) as gateway:
            yield gateway


class Link:
    """A way to a server that lets so many bytes of each answer through, and then breaks; the last limit holds for all
    that follow, None is no limit."""

    def __init__(self, port: int, limits: list[int | None]) -> None:
        self.connections = 0
        self.requests: list[str] = []  # their first lines
        self._port = port
        self._limits = limits
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            limit = self._limits[min(self.connections, len(self._limits) - 1)]
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [client, server]
            for work, arguments in ((self._there, (client, server)), (self._back, (server, client, limit))):
                thread = threading.Thread(target=work, args=arguments, daemon=True)
                thread.start()
                self._threads.append(thread)

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            _hang_up(end)
        for thread in self._threads:
            thread.join(60)

    def _there(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):  # the way back may have broken already
            while data := _read(client):
                self.requests.append(data.partition(b"\r\n")[0].decode("latin-1"))
                server.sendall(data)
        _hang_up(server)

    def _back(self, server: socket.socket, client: socket.socket, limit: int | None) -> None:
        passed = 0
        while data := _read(server):
            if limit is not None and passed + len(data) >= limit:
                client.sendall(data[: limit - passed])
                break
            passed += len(data)
            with suppress(OSError):
                client.sendall(data)
        _hang_up(client)
        _hang_up(server)


@contextmanager
def breaking(port: int, limits: list[int | None]) -> Iterator[Link]:
    link = Link(port, limits)
    thread = threading.Thread(target=link.serve, daemon=True)
    thread.start()
    try:
        yield link
    finally:
        link.stop()
        thread.join(60)


def _read(end: socket.socket) -> bytes:
    try:
        return end.recv(65536)
    except OSError:
        return b""


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
