"""A gateway that remembers, before a chat server and a responses server that do not; and how tests talk to it.

Every stream is judged as it comes, on HTTP and on WebSocket. The servers refuse what real ones refuse: lone outputs, calls without
outputs, wrong orders.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import httpx2
import msgspec
from tests.running import BOUND, Running, running
from tests.store import postgres_server
from tests.websocket_client import WebSocketClient, open_websocket

from antiphon import sse, testing
from antiphon.config import Config, KeyConfig, StoreConfig, Timeouts, UpstreamConfig
from antiphon.errors import StorageUnavailable
from antiphon.protocol.codec import decode_event
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.grammar import find_violations
from antiphon.store.interface import ResponseRecord, Store
from antiphon.store.opening import open_store
from antiphon.testing import ChatServer, ReceivedRequest, Reply, ResponsesServer, turn
from antiphon.testing.harness import FakeServer

T = TypeVar("T")
ALICE, BOB = "alice-key-0123456789", "bob-key-0123456789"
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("f", "g")]
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
CODEX = ("openai-beta", "responses_websockets=2026-02-06")


class Lab:
    """`mock-…` is served by the chat server, `other-…` by the responses server. Both say what `says` has for them, then
    hello."""

    def __init__(self, gateway: Running, chat: FakeServer, other: FakeServer, opened: Opened) -> None:
        self.gateway = gateway
        self.chat = chat
        self.other = other
        self.opened = opened
        self.says: list[Reply] = []

    def begin(self) -> None:
        for server in (self.chat, self.other):
            server.received.clear()
            server.refusals.clear()
        self.says.clear()

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def messages(self) -> list[tuple[str, Any]]:
        """What the chat server was sent last: who says what."""
        return [(message["role"], message.get("content")) for message in self.chat.received[-1].json["messages"]]

    @property
    def items(self) -> list[dict[str, Any]]:
        """What the responses server was sent last."""
        items: list[dict[str, Any]] = self.other.received[-1].json["input"]
        return items

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Something to do for the store, on the gateway's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.opened.loop).result(BOUND)

    @property
    def store(self) -> Store:
        assert self.gateway.services.store is not None
        return self.gateway.services.store

    def count(self) -> int:
        """How many responses are kept."""
        return self.run(self.store.stats()).responses

    # HTTP

    def ask(self, input: Any, *, key: str = ALICE, **settings: Any) -> httpx2.Response:
        return self.call("POST", "/v1/responses", key=key, json={"model": "mock-1", "input": input, **settings})

    def told(self, input: Any, **settings: Any) -> dict[str, Any]:
        """A response in one piece."""
        answer = self.ask(input, **settings)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def streamed(self, input: Any, **settings: Any) -> dict[str, Any]:
        """A response as its stream tells it."""
        end = dict(events_in(self.ask(input, stream=True, **settings))[-1])
        told: dict[str, Any] = end["response"]
        return told

    def refused(self, input: Any, **settings: Any) -> dict[str, Any]:
        return error_in(self.ask(input, **settings))

    def get(self, path: str, *, key: str = ALICE) -> httpx2.Response:
        return self.call("GET", f"/v1/responses/{path}", key=key)

    def kept(self, id: str, *, key: str = ALICE) -> dict[str, Any]:
        answer = self.get(id, key=key)
        assert answer.status_code == 200, answer.text
        kept: dict[str, Any] = answer.json()
        return kept

    def delete(self, id: str, *, key: str = ALICE) -> httpx2.Response:
        return self.call("DELETE", f"/v1/responses/{id}", key=key)

    def call(self, method: str, path: str, *, key: str = ALICE, **settings: Any) -> httpx2.Response:
        with httpx2.Client(timeout=BOUND) as client:
            return client.request(method, self.url + path, headers={"authorization": f"Bearer {key}"}, **settings)

    # WebSocket

    @contextmanager
    def socket(self, *headers: tuple[str, str], key: str = ALICE, small_buffer: bool = False) -> Iterator[Talk]:
        given = [("authorization", f"Bearer {key}"), *headers]
        with open_websocket(self.gateway.port, "/v1/responses", *given, small_buffer=small_buffer) as client:
            yield Talk(client)


class Talk:
    """A conversation on a WebSocket."""

    def __init__(self, client: WebSocketClient) -> None:
        self.client = client

    def send(self, input: Any, **settings: Any) -> None:
        self.client.send({"type": "response.create", "model": "mock-1", "input": input, **settings})

    def events(self) -> list[dict[str, Any]]:
        """One turn, to its end. WS-3: an end is a terminal event, or one error alone."""
        events = [self.client.receive_json()]
        while events[-1]["type"] not in ENDS:
            events.append(self.client.receive_json())
        if events[-1]["type"] == "error":
            assert len(events) == 1
            assert set(events[0]) == {"type", "status", "error"}
            assert set(events[0]["error"]) == {"type", "code", "message", "param"}
        else:
            assert [event["sequence_number"] for event in events] == list(range(len(events)))  # STR-5
            check(events)
        return events

    def events_to_end(self) -> list[dict[str, Any]]:
        """The rest of a turn of which something was read already."""
        events = [self.client.receive_json()]
        while events[-1]["type"] not in ENDS:
            events.append(self.client.receive_json())
        return events

    def ask(self, input: Any, **settings: Any) -> list[dict[str, Any]]:
        self.send(input, **settings)
        return self.events()

    def told(self, input: Any, **settings: Any) -> dict[str, Any]:
        """A turn that completes: its response."""
        end = self.ask(input, **settings)[-1]
        assert end["type"] == "response.completed", end
        told: dict[str, Any] = end["response"]
        return told

    def refused(self, input: Any, **settings: Any) -> dict[str, Any]:
        """A turn that is refused: its error, with the status in it."""
        [event] = self.ask(input, **settings)
        assert event["type"] == "error"
        return {"status": event["status"], **event["error"]}

    def until(self, kind: str) -> dict[str, Any]:
        """Reads on to the first event of a kind."""
        while True:
            event: dict[str, Any] = self.client.receive_json()
            if event["type"] == kind:
                return event
            assert event["type"] not in ENDS, event

    def settle(self) -> None:
        """The socket is as good as ever."""
        assert text_of(self.told("Still there?")) == "Hello."


class Opened:
    """How a gateway opens its store, and where it runs."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, wrap: Any = None) -> None:
        self._wrap = wrap

    async def __call__(self, config: StoreConfig, environ: Mapping[str, str]) -> Store | None:
        self.loop = asyncio.get_running_loop()
        store = await open_store(config, environ)
        return store if self._wrap is None or store is None else self._wrap(store)


class Hesitant:
    """A store that keeps nothing until it is let."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._let = asyncio.Event()
        self.asked = threading.Event()
        self.saved: list[ResponseRecord] = []

    def let(self) -> None:
        self._loop.call_soon_threadsafe(self._let.set)

    async def save(
        self, owner: str, record: ResponseRecord, item_ids: Sequence[str], call_ids: Sequence[str], **more: Any
    ) -> None:
        self.asked.set()
        await self._let.wait()
        self.saved.append(record)
        await self._store.save(owner, record, item_ids, call_ids, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Full(Hesitant):
    """A store that can keep nothing more."""

    async def save(
        self, owner: str, record: ResponseRecord, item_ids: Sequence[str], call_ids: Sequence[str], **more: Any
    ) -> None:
        del owner, record, item_ids, call_ids, more
        raise StorageUnavailable("the disk is full")


@contextmanager
def lab(
    url: str | None = None, *, keys: bool = True, wrap: Any = None, config: Any = None, **settings: Any
) -> Iterator[Lab]:
    """A lab, with a SQLite store of its own unless another is named. With `keys` it knows alice and bob. `config` may
    change its configuration before it starts."""
    found: list[Lab] = []

    def script(received: ReceivedRequest) -> Reply:
        del received
        return found[0].says.pop(0) if found[0].says else HELLO

    opened = Opened(wrap)
    with TemporaryDirectory() as folder, ChatServer(script) as chat, ResponsesServer(script) as other:
        upstreams = [
            UpstreamConfig(name="other", dialect="responses", base_url=other.base_url, models=["other-*"]),
            UpstreamConfig(name="chat", dialect="chat", base_url=chat.base_url, models=["mock-*"]),
            UpstreamConfig(name="away", dialect="chat", base_url="http://127.0.0.1:1/v1", models=["away-1"]),
        ]
        owners = [
            KeyConfig(name=name, sha256=sha256(key.encode()).hexdigest())
            for name, key in (("alice", ALICE), ("bob", BOB))
        ]
        settled = Config(
            upstreams=upstreams,
            keys=owners if keys else [],
            store=StoreConfig(url=url or f"sqlite:///{folder}/antiphon.db"),
            timeouts=Timeouts(idle=20),
        )
        with running(config(settled) if config else settled, open_store=opened, **settings) as gateway:
            found.append(Lab(gateway, chat, other, opened))
            yield found[0]


@contextmanager
def lab_on(place: str) -> Iterator[Lab]:
    """A lab for many tests, on `sqlite` or `postgres`."""
    with lab(postgres_server.fresh_url() if place == "postgres" else None) as found:
        yield found


def database_of(gateway: Running) -> Path:
    """The file of a SQLite store."""
    url = gateway.services.config.store.url
    assert url is not None
    return Path(url.removeprefix("sqlite:///"))


def events_in(answer: httpx2.Response) -> list[dict[str, Any]]:
    """A stream, which is in order to its end (STR-5, STR-6, HTTP-4)."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = sse.Decoder().feed(answer.content)
    assert frames[-1].data == sse.DONE
    events = [msgspec.json.decode(frame.data) for frame in frames[:-1]]
    check(events)
    return events


def check(events: list[dict[str, Any]]) -> list[StreamEvent]:
    decoded = [decode_event(msgspec.json.encode(event)) for event in events]
    assert find_violations(decoded) == []
    return decoded


def error_in(answer: httpx2.Response) -> dict[str, Any]:
    """ERR-1, with the status in it."""
    assert answer.status_code >= 400, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"type", "code", "message", "param"}
    return {"status": answer.status_code, **error}


def text_of(response: dict[str, Any]) -> str:
    """All text of all messages."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


def message(role: str, text: str, **members: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text, **members}


def output(call_id: str, text: str = "42", **members: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text, **members}
