"""Both event loops, for whatever touches sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine to its end, on each kind of event loop; no callback may fail unseen."""

    def run_on_loop(work: Coroutine[Any, Any, None]) -> None:
        troubles: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: troubles.append(context))
            runner.run(work)
        assert troubles == []

    return run_on_loop
