"""`@agent`: makes a model of an async function that answers turns.

Every turn ends with exactly one terminal event. An exception fails the response: an `ApiError` with its own message,
any other with a general one; its details are in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from antiphon.config import Config
from antiphon.errors import ApiError
from antiphon.producer.turn import Outlet, Turn
from antiphon.protocol.emitters import Emitter
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter
from antiphon.system_stamps import SYSTEM_STAMPS

if TYPE_CHECKING:
    from antiphon.http.asgi import Receive, Scope, Send

AgentFunction = Callable[[Turn], Awaitable[None]]
LOG: Final = logging.getLogger("antiphon.agent")


def agent(*, model: str) -> Callable[[AgentFunction], Agent]:
    """Makes an async function an agent; `model` is its name for clients. `antiphon serve --agent` serves it.

    Example:
        @agent(model="parrot")
        async def parrot(turn: Turn) -> None:
            async with turn.message() as message:
                await message.write(turn.text)
    """
    return lambda function: Agent(function, model)


class Agent:
    """A model that is a Python function. The decorator `agent` makes one.

    Example:
        async def run(turn: Turn) -> None:
            async with turn.message() as message:
                await message.write("Hello.")

        hello = Agent(run, "hello")
    """

    def __init__(self, function: AgentFunction, model: str) -> None:
        self.model = model
        self._function = function

    async def answer(
        self,
        request: Request,
        emit: Emitter,
        *,
        outlet: Outlet | None = None,
        stamps: Stamps = SYSTEM_STAMPS,
        total: float | None = None,
    ) -> Response:
        """Runs one turn to its end, within `total` seconds if that is given. Cancelling it cancels the function.

        Example:
            @agent(model="parrot")
            async def parrot(turn: Turn) -> None:
                async with turn.message() as message:
                    await message.write(turn.text)

            response = await parrot.answer(Request(input="Hello."), print)
            assert response.output_text == "Hello."
        """
        initial_response = make_initial_response(
            request, id=stamps.new_id("resp"), created_at=stamps.now(), model=request.model or self.model
        )
        writer = ResponseWriter(initial_response, emit, stamps)
        writer.start()
        turn = Turn(request, writer, stamps, outlet or UnboundedOutlet())
        error = await self._run_function(turn, total)
        if not writer.has_ended:
            if error is None:
                writer.complete()
            else:
                writer.fail(error)
        return writer.response

    def asgi(self, config: Config | None = None) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """An ASGI application that serves the agent. `config` has keys, hosts and the store; without it nothing is
        stored.

        Example:
            @agent(model="parrot")
            async def parrot(turn: Turn) -> None:
                async with turn.message() as message:
                    await message.write(turn.text)

            app = parrot.asgi()
        """
        # Imported here: a program that only produces events needs no server.
        from antiphon.producer.serving import asgi_app

        return asgi_app(self, config)

    async def _run_function(self, turn: Turn, total: float | None) -> ApiError | None:
        """Runs the function. Returns its error, if any."""
        limit = asyncio.timeout(total)
        try:
            async with limit:
                await self._function(turn)
        except ApiError as error:
            return error
        except Exception as error:
            if limit.expired():
                return ApiError(f"the agent did not finish within {total:g} s", code="upstream_timeout", status=504)
            LOG.exception("the agent %r failed", self.model, exc_info=error)
            return ApiError("the agent failed; see the log of the gateway", code="agent_failed")
        return None


class UnboundedOutlet:
    """An outlet without backpressure."""

    def is_busy(self) -> bool:
        return False

    async def wait_for_reader(self) -> None:
        """Returns at once."""
