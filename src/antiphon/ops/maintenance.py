"""Runs the maintenance tasks of a process: retention, the writing of usage, garbage collection.

A task handles the errors that it expects. If another error ends it, the error is logged with its traceback, and the
task is started again after `RESTART_DELAY` seconds. The process goes on serving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from antiphon.ops.logger import Logger

RESTART_DELAY: Final = 60.0  # seconds
StartTask = Callable[[], Coroutine[Any, Any, None]]


class MaintenanceTasks:
    """The running maintenance tasks. Needs a running event loop."""

    def __init__(self, logger: Logger, *, restart_delay: float = RESTART_DELAY) -> None:
        self._logger = logger
        self._restart_delay = restart_delay
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._restart_timers: dict[str, asyncio.TimerHandle] = {}
        self._is_closed = False

    def start(self, name: str, start_task: StartTask) -> None:
        """Starts a task, which runs until `close`."""
        self._restart_timers.pop(name, None)
        task = self._tasks[name] = self._loop.create_task(start_task(), name=name)
        task.add_done_callback(partial(self._on_task_done, name, start_task))

    async def close(self) -> None:
        """Cancels all tasks and waits for their end."""
        self._is_closed = True
        for timer in self._restart_timers.values():
            timer.cancel()
        for task in list(self._tasks.values()):
            task.cancel()
            await asyncio.wait([task])

    def _on_task_done(self, name: str, start_task: StartTask, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._logger.fault(
                "a maintenance task failed inside the gateway", error, task=name, restart_in_seconds=self._restart_delay
            )
            if not self._is_closed:
                self._restart_timers[name] = self._loop.call_later(self._restart_delay, self.start, name, start_task)
