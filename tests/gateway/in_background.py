"""A gateway that works in the background for tests, and how they talk to it: leases are short, and every stream is
judged."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.running import BOUND, Running, running, until

from antiphon import sse, testing
from antiphon.config import BackgroundConfig, Config, KeyConfig, ServerConfig, StoreConfig, UpstreamConfig
from antiphon.gateway.background_runner import BackgroundTimings
from antiphon.protocol.codec import decode_event
from antiphon.protocol.events import StreamEvent, TerminalEvent
from antiphon.protocol.grammar import find_violations
from antiphon.store.opening import open_store
from antiphon.testing import ChatServer, Gate, ReceivedRequest, Reply, turn

ALICE, BOB = "alice-key-0123456789", "bob-key-0123456789"
HELLO = turn(testing.text("Hel", "lo", "."), testing.usage(5, 3))
UNDER_WAY = ("queued", "in_progress")
BACKGROUND_TIMINGS = BackgroundTimings(lease=1.5, heartbeat=0.05, poll_interval=0.05, flush_interval=0.01)
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]


class Client:
    """Somebody who asks a gateway, with a key."""

    def __init__(self, url: str, key: str = ALICE) -> None:
        self.url = url
        self._headers = {"authorization": f"Bearer {key}"}

    def ask(self, method: str, path: str, **settings: Any) -> httpx2.Response:
        with httpx2.Client(timeout=BOUND, verify=False) as client:
            return client.request(method, self.url + path, headers=self._headers, **settings)

    def post(self, **settings: Any) -> httpx2.Response:
        return self.ask("POST", "/v1/responses", json={"model": "mock-1", "input": "Say hello.", **settings})

    def begin(self, **settings: Any) -> str:
        """Something to do in the background."""
        answer = self.post(background=True, **settings)
        assert answer.status_code == 200, answer.text
        response = answer.json()
        assert (response["status"], response["background"], response["output"]) == ("queued", True, [])
        return str(response["id"])

    def get(self, id: str) -> dict[str, Any]:
        answer = self.ask("GET", f"/v1/responses/{id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def cancel(self, id: str) -> httpx2.Response:
        return self.ask("POST", f"/v1/responses/{id}/cancel")

    def wait(self, id: str, *statuses: str, seconds: float = BOUND) -> dict[str, Any]:
        """The response, once it is one of these, or has ended."""
        found: dict[str, Any] = {}

        def is_there() -> bool:
            with suppress(httpx2.TransportError):
                found.update(self.get(id))
                return found["status"] in statuses if statuses else found["status"] not in UNDER_WAY
            return False

        until(is_there, seconds)
        return found

    def events(self, id: str, after: int | None = None) -> list[StreamEvent]:
        """Its stream to the end, from the first event on or after one. From the first on it is judged."""
        query = "" if after is None else f"&starting_after={after}"
        answer = self.ask("GET", f"/v1/responses/{id}?stream=true{query}")
        events = events_in(answer)
        if after is None:
            check(events)
        return events

    @contextmanager
    def reading(self, method: str, path: str, **settings: Any) -> Iterator[Iterator[StreamEvent]]:
        """A stream as it comes; leaving the block leaves the stream."""
        with (
            httpx2.Client(timeout=BOUND, verify=False) as client,
            client.stream(method, self.url + path, headers=self._headers, **settings) as answer,
        ):
            assert answer.status_code == 200, answer.read()
            yield _events(answer)


def _events(answer: httpx2.Response) -> Iterator[StreamEvent]:
    decoder = sse.Decoder()
    for piece in answer.iter_raw():
        for frame in decoder.feed(piece):
            if frame.data != sse.DONE:
                yield decode_event(frame.data)


def events_in(answer: httpx2.Response) -> list[StreamEvent]:
    assert answer.status_code == 200, answer.text
    frames = sse.Decoder().feed(answer.content)
    assert frames[-1].data == sse.DONE
    return [decode_event(frame.data) for frame in frames[:-1]]


def check(events: list[StreamEvent]) -> None:
    """Invariants 1 and 2 of docs/errors.md: in order, without a gap, with one end."""
    violations = find_violations(events)
    assert not violations, violations
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [isinstance(event, TerminalEvent) for event in events] == [False] * (len(events) - 1) + [True]


def told_by(events: list[StreamEvent]) -> dict[str, Any]:
    """The response that a stream ends with, as JSON."""
    assert isinstance(events[-1], TerminalEvent)
    response: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(events[-1].response))
    return response


class Lab(Client):
    """A gateway, and the one upstream behind it, which says what it is told by the text of the last message."""

    def __init__(self, gateway: Running, upstream: ChatServer, says: dict[str, Reply]) -> None:
        super().__init__(gateway.url)
        self.gateway = gateway
        self.upstream = upstream
        self.says = says
        self._gates: list[Gate] = []

    def gate(self) -> Gate:
        """One that is open when the test is over, whatever came of it."""
        self._gates.append(Gate())
        return self._gates[-1]

    def open_gates(self) -> None:
        for gate in self._gates:
            gate.open()

    @property
    def bob(self) -> Client:
        return Client(self.url, BOB)

    def asked(self, text: str) -> int:
        """How often the upstream was asked this."""
        return sum(_last(received) == text for received in self.upstream.received)

    def block(self, count: int) -> Gate:
        """Keeps every runner busy, until the gate is opened."""
        gate = self.gate()
        self.says["block"] = turn(testing.wait(gate), testing.text("Done."))
        before = self.asked("block")
        for _ in range(count):
            self.begin(input="block")
        until(lambda: self.asked("block") == before + count)
        return gate


@contextmanager
def scripted(says: dict[str, Reply]) -> Iterator[ChatServer]:
    """An upstream that answers each text with what there is for it."""
    with ChatServer(lambda received: says.get(_last(received), HELLO)) as upstream:
        yield upstream
        assert not upstream.refusals


@contextmanager
def laboratory(
    url: str, *, upstream: ChatServer | None = None, says: dict[str, Reply] | None = None, **settings: Any
) -> Iterator[Lab]:
    says = {} if says is None else says
    if upstream is None:
        with scripted(says) as upstream, laboratory(url, upstream=upstream, says=says, **settings) as lab:
            yield lab
        return
    config = config_of(url, upstream.base_url, **settings.pop("config", {}))
    with running(config, **{"background_timings": BACKGROUND_TIMINGS, **settings}) as gateway:
        yield Lab(gateway, upstream, says)


def config_of(url: str, base_url: str, **settings: Any) -> Config:
    keys = [
        KeyConfig(name=name, sha256=sha256(key.encode()).hexdigest()) for name, key in (("alice", ALICE), ("bob", BOB))
    ]
    usual: dict[str, Any] = {
        "upstreams": [UpstreamConfig(name="lab", dialect="chat", base_url=base_url, models=["*"])],
        "keys": keys,
        "store": StoreConfig(url=url),
        "background": BackgroundConfig(running=8, waiting=1000),
        "server": ServerConfig(grace=0.2),
    }
    return Config(**usual | settings)


def _last(received: ReceivedRequest) -> str:
    content = received.json["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


class Stall:
    """A store of which one method stops before it does its work, from when it is told to until it is let go. The first
    `passes` calls do not stop."""

    def __init__(self, method: str, passes: int = 0) -> None:
        self.method = method
        self._passes = passes
        self.is_on = False
        self.reached = threading.Event()
        self._gate = Gate()

    async def open(self, config: StoreConfig, environ: Any) -> Any:
        return _Stalling(await open_store(config, environ), self)

    def let_go(self) -> None:
        self.is_on = False
        self._gate.open()

    def wrapped(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def stalled(*arguments: Any, **named: Any) -> Any:
            if self.is_on and self._passes:
                self._passes -= 1
            elif self.is_on:
                self.reached.set()
                await self._gate.wait_until_open()
            return await ask(*arguments, **named)

        return stalled


class _Stalling:
    def __init__(self, store: Any, stall: Stall) -> None:
        self._store = store
        self._stall = stall

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._stall.wrapped(found) if name == self._stall.method else found


class Replica(Client):
    """A gateway in a process of its own, which can be killed."""

    def __init__(self, config: Config) -> None:
        command = [sys.executable, "-c", "from tests.gateway.in_background import serve; serve()"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert self._process.stdin
        self._process.stdin.write(msgspec.json.encode(config) + b"\n")
        self._process.stdin.flush()

    def listen(self) -> Replica:
        """Waits until it is up."""
        assert self._process.stdout
        super().__init__(self._process.stdout.readline().decode().strip())
        assert self.url, "the gateway did not start"
        return self

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(BOUND)

    def stop(self) -> None:
        """In good order, if it still lives."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(BOUND)
        self._process.stdout.close()


@contextmanager
def replicas(*configs: Config) -> Iterator[list[Replica]]:
    """So many, begun in the same moment."""
    begun = [Replica(config) for config in configs]
    try:
        yield [replica.listen() for replica in begun]
    finally:
        for replica in begun:
            replica.stop()


def serve() -> None:
    """What such a process does: serves until nobody holds its input open."""
    config = msgspec.json.decode(sys.stdin.buffer.readline(), type=Config)
    with running(config, background_timings=BACKGROUND_TIMINGS) as gateway:
        print(gateway.url, flush=True)
        sys.stdin.read()


class Fails:
    """A store whose methods raise the errors in `raises`, the last one first; None lets one call through."""

    def __init__(self) -> None:
        self.raises: dict[str, list[Exception | None]] = {}
        self.asked: Counter[str] = Counter()
        self._store: Any = None

    async def open(self, config: StoreConfig, environ: Any) -> Any:
        self._store = await open_store(config, environ)
        return self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name == "change_counter":
            return found

        async def ask(*arguments: Any, **named: Any) -> Any:
            self.asked[name] += 1
            waiting = self.raises.get(name)
            error = waiting.pop() if waiting else None
            if error is not None:
                raise error
            return await found(*arguments, **named)

        return ask


ROOT = Path(__file__).parents[2]
