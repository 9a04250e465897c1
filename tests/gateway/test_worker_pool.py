"""`gateway/worker_pool` and `gateway/worker`: jobs run in other processes, which start late, recover and end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.running import until

from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool

pytestmark = pytest.mark.io
T = TypeVar("T")


async def report_process(ask: Callable[..., Any]) -> int:
    del ask
    return os.getpid()


async def ask_for(ask: Callable[..., Any], name: str) -> Any:
    return ask(name, 1, two=2), os.getpid()


async def refuse(ask: Callable[..., Any]) -> None:
    del ask
    raise ClientFault("no", param="input", code="invalid_value")


async def fail(ask: Callable[..., Any]) -> None:
    del ask
    raise ZeroDivisionError("inside")


async def wait_for_loop(ask: Callable[..., Any]) -> None:
    del ask
    await asyncio.sleep(0)


async def die_once(ask: Callable[..., Any], marker: Path) -> int:
    del ask
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


async def die(ask: Callable[..., Any]) -> None:
    del ask
    os.kill(os.getpid(), signal.SIGKILL)


async def return_bytes(ask: Callable[..., Any], data: bytes) -> bytes:
    del ask
    return data


def with_pool(use: Callable[[WorkerPool], Awaitable[T]], size: int = 1, idle_seconds: float = 60.0) -> T:
    async def run() -> T:
        pool = WorkerPool(size, idle_seconds)
        try:
            return await use(pool)
        finally:
            await pool.close()
            assert pool.process_ids == []

    return asyncio.run(run())


def is_alive(process_id: int) -> bool:
    return Path(f"/proc/{process_id}").exists()


def test_jobs_run_in_one_other_process_that_starts_with_the_first() -> None:
    async def use(pool: WorkerPool) -> set[int]:
        assert pool.process_ids == []
        return {await pool.run(report_process) for _ in range(3)}

    processes = with_pool(use)
    assert len(processes) == 1
    assert os.getpid() not in processes
    assert not any(map(is_alive, processes))  # they end with the pool


def test_pool_starts_no_more_processes_than_its_size() -> None:
    async def use(pool: WorkerPool) -> list[int]:
        return await asyncio.gather(*(pool.run(report_process) for _ in range(8)))

    assert len(set(with_pool(use, size=2))) <= 2


def test_large_bytes_cross_unchanged() -> None:
    data = os.urandom(1 << 20) * 5
    assert with_pool(lambda pool: pool.run(return_bytes, data)) == data


def test_job_asks_the_gateway() -> None:
    async def answer(name: str, *arguments: Any, **options: Any) -> Any:
        return name, arguments, options, os.getpid()

    asked, process = with_pool(lambda pool: pool.run(ask_for, "something", answer=answer))
    assert asked == ("something", (1,), {"two": 2}, os.getpid())
    assert process != os.getpid()


def test_error_of_an_answer_is_the_error_of_the_job() -> None:
    async def answer(name: str, *arguments: Any, **options: Any) -> Any:
        del arguments, options
        raise ClientFault(f"no {name}", param="model")

    with pytest.raises(ClientFault, match="no model") as caught:
        with_pool(lambda pool: pool.run(ask_for, "model", answer=answer))
    assert caught.value.param == "model"


def test_error_of_a_job_is_raised_with_all_its_members() -> None:
    with pytest.raises(ClientFault) as caught:
        with_pool(lambda pool: pool.run(refuse))
    error = caught.value
    assert (error.message, error.param, error.code, error.status) == ("no", "input", "invalid_value", 400)


@pytest.mark.parametrize(("job", "description"), [(fail, "ZeroDivisionError: inside"), (wait_for_loop, "waited for")])
def test_fault_of_a_job_has_its_traceback_and_the_worker_goes_on(job: Any, description: str) -> None:
    async def use(pool: WorkerPool) -> tuple[int, int]:
        before = await pool.run(report_process)
        with pytest.raises(RuntimeError, match=description):
            await pool.run(job)
        return before, await pool.run(report_process)

    before, after = with_pool(use)
    assert before == after


def test_job_of_a_process_that_dies_runs_again_in_a_new_one(tmp_path: Path) -> None:
    async def use(pool: WorkerPool) -> tuple[int, int]:
        return await pool.run(report_process), await pool.run(die_once, tmp_path / "died")

    before, after = with_pool(use)
    assert before != after


def test_job_that_always_kills_its_process_is_an_error() -> None:
    async def use(pool: WorkerPool) -> int:
        with pytest.raises(ApiError, match="worker process ended"):
            await pool.run(die)
        return await pool.run(report_process)  # others are served

    assert with_pool(use) != os.getpid()


def test_idle_processes_end() -> None:
    async def use(pool: WorkerPool) -> int:
        process = await pool.run(report_process)
        while is_alive(process):
            await asyncio.sleep(0.01)
        assert pool.process_ids == []
        return await pool.run(report_process)  # a new one starts

    with_pool(use, idle_seconds=0.05)


def test_job_of_a_cancelled_caller_ends_before_its_process_is_used_again() -> None:
    async def use(pool: WorkerPool) -> int:
        task = asyncio.create_task(pool.run(report_process))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await pool.run(report_process)

    assert with_pool(use) != os.getpid()


def test_function_is_called_here_unless_its_input_is_large() -> None:
    async def use(pool: WorkerPool) -> tuple[int, int]:
        return await pool.call(LARGE_INPUT, os.getpid), await pool.call(LARGE_INPUT + 1, os.getpid)

    here, there = with_pool(use)
    assert here == os.getpid() != there


def test_processes_end_with_the_process_that_started_them() -> None:
    program = (
        "import asyncio\n"
        "from antiphon.gateway.worker_pool import WorkerPool, call_function\n"
        "import os\n"
        "async def main():\n"
        "    pool = WorkerPool(1)\n"
        "    print(await pool.run(call_function, os.getpid, ()), flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert is_alive(worker)
        parent.kill()
    until(lambda: not is_alive(worker), seconds=5)
