"""Run cases against a server, a few concurrently, and report each outcome when its case ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from antiphon.check.case import CaseOutcome, CheckCase
from antiphon.check.findings import SkipCase, StopCase
from antiphon.check.session import CaseSession, CheckedServer, NoAnswer

MAX_CONCURRENT_CASES: Final = 4


async def run_cases(
    server: CheckedServer, cases: Iterable[CheckCase], on_outcome: Callable[[CaseOutcome], object]
) -> list[CaseOutcome]:
    """Return the outcomes in the order of the cases. `on_outcome` receives each one when its case ends."""
    slots = asyncio.Semaphore(MAX_CONCURRENT_CASES)

    async def run_and_report(case: CheckCase) -> CaseOutcome:
        async with slots:
            outcome = await _run_case(case, server)
        on_outcome(outcome)
        return outcome

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_and_report(case)) for case in cases]
    return [task.result() for task in tasks]


async def first_model(server: CheckedServer) -> str | None:
    """Return the first model that the server lists; None if it lists none. Raise `NoAnswer` if no server answers."""
    exchange = await server.exchange("GET", "/models", content_type=None)
    models: Any = exchange.json.get("data") if exchange.status == 200 else None
    match models:
        case [{"id": str(name)}, *_]:
            return name
        case _:
            return None


async def _run_case(case: CheckCase, server: CheckedServer) -> CaseOutcome:
    session = CaseSession(server, case.rows[0])
    clock = asyncio.get_running_loop().time
    start_time = clock()
    skipped = ""
    try:
        await case.run(session)
    except SkipCase as skip:
        skipped = str(skip)
    except StopCase:
        pass
    except NoAnswer as no_answer:
        session.report(
            f"the server did not answer: {no_answer}; expected an answer to every request", sent=no_answer.sent
        )
    return CaseOutcome(case=case, findings=session.findings, skipped=skipped, seconds=clock() - start_time)
