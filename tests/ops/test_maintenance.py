"""Maintenance tasks: a task that fails is logged and started again, and the process goes on."""

from __future__ import annotations

import asyncio
import io
import json

from antiphon.ops.logger import Logger
from antiphon.ops.maintenance import MaintenanceTasks


def test_failed_task_is_logged_and_restarted() -> None:
    starts = 0

    async def fail_twice() -> None:
        nonlocal starts
        starts += 1
        if starts < 3:
            raise ZeroDivisionError("ours")
        await asyncio.Event().wait()

    async def story() -> str:
        out = io.StringIO()
        tasks = MaintenanceTasks(Logger(out, "json"), restart_delay=0)
        tasks.start("sweep", fail_twice)
        while starts < 3:
            await asyncio.sleep(0)
        await tasks.close()
        return out.getvalue()

    lines = [json.loads(line) for line in asyncio.run(story()).splitlines()]
    assert [(line["level"], line["event"], line["task"]) for line in lines] == [
        ("error", "a maintenance task failed inside the gateway", "sweep")
    ] * 2
    assert lines[0]["exception"].rstrip().endswith("ZeroDivisionError: ours")
    assert starts == 3


def test_close_cancels_tasks_and_waiting_restarts() -> None:
    ended: list[str] = []

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fail() -> None:
        ended.append("fails")
        raise ZeroDivisionError

    async def story() -> None:
        tasks = MaintenanceTasks(Logger(io.StringIO(), "json"), restart_delay=0.01)
        tasks.start("waits", wait_forever)
        tasks.start("fails", fail)
        while not ended:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await tasks.close()
        await asyncio.sleep(0.03)  # longer than the delay of the restart

    asyncio.run(story())
    assert ended == ["fails", "waits"]


def test_task_that_fails_while_it_is_closed_is_logged_but_not_restarted() -> None:
    starts = 0

    async def fail_at_the_end() -> None:
        nonlocal starts
        starts += 1
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    async def story() -> str:
        out = io.StringIO()
        tasks = MaintenanceTasks(Logger(out, "json"), restart_delay=0)
        tasks.start("sweep", fail_at_the_end)
        await asyncio.sleep(0)
        await tasks.close()
        for _ in range(5):
            await asyncio.sleep(0)
        return out.getvalue()

    assert "ZeroDivisionError" in asyncio.run(story())
    assert starts == 1


def test_task_that_returns_is_not_restarted() -> None:
    starts = 0

    async def return_at_once() -> None:
        nonlocal starts
        starts += 1

    async def story() -> None:
        tasks = MaintenanceTasks(Logger(io.StringIO(), "json"), restart_delay=0)
        tasks.start("short", return_at_once)
        for _ in range(5):
            await asyncio.sleep(0)
        await tasks.close()

    asyncio.run(story())
    assert starts == 1
