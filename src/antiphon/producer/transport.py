"""Agents as upstreams of the gateway, in its own process: a `Transport` that runs them, and passes all else on to the network.

What an agent says is Open Responses as any server speaks it, so that the gateway treats it like one: state, background work and
every client's dialect included.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

from antiphon.config import Timeouts
from antiphon.dialects import responses
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.routes import AGENT_SCHEME
from antiphon.producer.agent import Agent
from antiphon.protocol.events import ResponseCompleted, ResponseFailed, ResponseIncomplete, StreamEvent
from antiphon.protocol.request import Request
from antiphon.upstream.transport import Transport, UpstreamResponse

MAX_HELD: Final = 32 * 1024  # bytes that wait for the reader before the agent does
ENDS: Final[frozenset[type]] = frozenset({ResponseCompleted, ResponseFailed, ResponseIncomplete})
TURN: Final = 0.001  # seconds for which an agent may write before others have a turn


class AgentTransport:
    """Agents by the names that `agent` has in an upstream's configuration, and the network."""

    def __init__(self, agents: Mapping[str, Agent], network: Transport) -> None:
        self.network = network
        self._agents = agents
        self._answers: set[AgentAnswer] = set()

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> UpstreamResponse:
        if not url.startswith(AGENT_SCHEME):
            return await self.network.send(method, url, headers, body, timeouts)
        name, _, path = url.removeprefix(AGENT_SCHEME).rpartition("/")
        try:
            if (method, path) != ("POST", "responses"):
                raise ClientFault("an agent only answers turns", type="not_found", code="not_found")
            request, _ = responses.request_to_hub(body)
        except ApiError as error:
            return ErrorAnswer(error)
        answer = AgentAnswer(self._agents[name], request, timeouts.total)
        self._answers.add(answer)
        answer.task.add_done_callback(lambda _: self._answers.discard(answer))
        return answer

    async def close(self) -> None:
        for answer in list(self._answers):
            answer.abort()
        await self.network.close()


class AgentAnswer:
    """An agent at work: the head of its answer at once, its events as it tells them. It waits for a reader that is slow."""

    status = 200

    def __init__(self, agent: Agent, request: Request, total: float) -> None:
        self.headers: dict[str, str] = {"content-type": "text/event-stream"}
        self._from_hub = responses.EventsFromHub(request)
        self._held: list[bytes] = []
        self._size = 0
        self._loop = asyncio.get_running_loop()
        self._rested = self._loop.time()
        self._is_over = False
        self._news = asyncio.Event()  # for the reader
        self._room = asyncio.Event()  # for the agent
        self._room.set()
        self.task = self._loop.create_task(agent.answer(request, self._emit, outlet=self, total=total))
        self.task.add_done_callback(lambda _: self._news.set())

    # The reader's side

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while True:
                if self._held:
                    yield self._take()
                elif self.task.done():
                    return
                else:
                    self._news.clear()
                    await self._news.wait()
        finally:
            self.abort()

    def abort(self) -> None:
        """The agent gets a `CancelledError` where it waits. One that has told its end may put things away."""
        if not self._is_over:
            self.task.cancel()

    # The agent's side

    def is_busy(self) -> bool:
        return self._size > MAX_HELD or self._loop.time() - self._rested > TURN

    async def wait_for_reader(self) -> None:
        await asyncio.sleep(0)  # the reader takes what there is
        if self._size > MAX_HELD:
            self._room.clear()
            await self._room.wait()
        self._rested = self._loop.time()

    def _emit(self, event: StreamEvent) -> None:
        data = self._from_hub.feed(event)
        self._held.append(data)
        self._size += len(data)
        self._is_over = type(event) in ENDS
        self._news.set()

    def _take(self) -> bytes:
        piece = b"".join(self._held)
        self._held.clear()
        self._size = 0
        self._room.set()
        return piece


class ErrorAnswer:
    """An answer that is an error."""

    def __init__(self, error: ApiError) -> None:
        self.status, self._body = responses.error_from_hub(error)
        self.headers: dict[str, str] = {"content-type": "application/json"}

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self._body

    def abort(self) -> None:
        pass
