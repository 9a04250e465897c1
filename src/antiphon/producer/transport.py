"""A `Transport` that runs agents as upstreams, in the process of the gateway, and sends all other requests to the
network.

An agent answers in the Open Responses dialect, so the gateway treats it like any server, with state, background work
and all client dialects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

from antiphon.config import Timeouts
from antiphon.dialects import responses
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.upstreams import AGENT_SCHEME
from antiphon.producer.agent import Agent
from antiphon.protocol.events import ResponseCompleted, ResponseFailed, ResponseIncomplete, StreamEvent
from antiphon.protocol.request import Request
from antiphon.upstream.transport import Transport, UpstreamResponse

MAX_PENDING_BYTES: Final = 32 * 1024  # bytes in the buffer before the agent has to wait for the reader
TERMINAL_EVENTS: Final[frozenset[type]] = frozenset({ResponseCompleted, ResponseFailed, ResponseIncomplete})
MAX_RUN_SECONDS: Final = 0.001  # seconds for which an agent may write without yielding to other tasks


class AgentTransport:
    """Runs agents by the name in the `agent` setting of an upstream; sends other requests to the network."""

    def __init__(self, agents: Mapping[str, Agent], network: Transport) -> None:
        self.network = network
        self._agents = agents
        self._answers: set[AgentAnswer] = set()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> UpstreamResponse:
        if not url.startswith(AGENT_SCHEME):
            return await self.network.send(method, url, headers, body, timeouts)
        name, _, path = url.removeprefix(AGENT_SCHEME).rpartition("/")
        try:
            if (method, path) != ("POST", "responses"):
                raise ClientFault("an agent supports only turns", type="not_found", code="not_found")
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
    """The answer of a running agent: the head at once, then its events. The agent waits for a slow reader."""

    status = 200

    def __init__(self, agent: Agent, request: Request, total: float) -> None:
        self.headers: dict[str, str] = {"content-type": "text/event-stream"}
        self._from_hub = responses.EventsFromHub(request)
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._loop = asyncio.get_running_loop()
        self._last_pause = self._loop.time()
        self._has_ended = False
        self._data_ready = asyncio.Event()  # wakes the reader
        self._can_write = asyncio.Event()  # wakes the agent
        self._can_write.set()
        self.task = self._loop.create_task(agent.answer(request, self._emit, outlet=self, total=total))
        self.task.add_done_callback(lambda _: self._data_ready.set())

    # The reader's side

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while True:
                if self._pending:
                    yield self._take_pending()
                elif self.task.done():
                    return
                else:
                    self._data_ready.clear()
                    await self._data_ready.wait()
        finally:
            self.abort()

    def abort(self) -> None:
        """Cancels the agent, unless it has sent its terminal event: then it may finish its cleanup."""
        if not self._has_ended:
            self.task.cancel()

    # The agent's side

    def is_busy(self) -> bool:
        return self._pending_size > MAX_PENDING_BYTES or self._loop.time() - self._last_pause > MAX_RUN_SECONDS

    async def wait_for_reader(self) -> None:
        await asyncio.sleep(0)  # lets the reader run
        if self._pending_size > MAX_PENDING_BYTES:
            self._can_write.clear()
            await self._can_write.wait()
        self._last_pause = self._loop.time()

    def _emit(self, event: StreamEvent) -> None:
        data = self._from_hub.feed(event)
        self._pending.append(data)
        self._pending_size += len(data)
        self._has_ended = type(event) in TERMINAL_EVENTS
        self._data_ready.set()

    def _take_pending(self) -> bytes:
        piece = b"".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        self._can_write.set()
        return piece


class ErrorAnswer:
    """An error answer."""

    def __init__(self, error: ApiError) -> None:
        self.status, self._body = responses.error_from_hub(error)
        self.headers: dict[str, str] = {"content-type": "application/json"}

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self._body

    def abort(self) -> None:
        pass
