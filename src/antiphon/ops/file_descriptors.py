"""Watches the file descriptors of a process. If they run out, connections are refused without an error that a client or
an operator could read, so this is logged.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from contextlib import suppress
from typing import Final

from antiphon.gateway.context import Level
from antiphon.ops.logger import Logger

CHECK_INTERVAL: Final = 1.0  # seconds
REPEAT_INTERVAL: Final = 60.0  # seconds between two log entries while the problem lasts
WARNING_SHARE: Final = 0.9  # of the limit
EXHAUSTED_ERRORS: Final = (errno.EMFILE, errno.ENFILE)


def raise_descriptor_limit() -> None:
    """Raises the limit of this process to the highest value that is allowed: every request needs up to two
    descriptors, and the usual limit is 1024."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit != hard_limit:
        with suppress(OSError, ValueError):  # macOS refuses `unlimited`
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


async def watch_descriptors(logger: Logger, *, interval: float = CHECK_INTERVAL) -> None:
    """Logs when descriptors run short or out, and when there are enough again."""
    loop = asyncio.get_running_loop()
    logged_problem: str | None = None
    logged_at = 0.0
    while True:
        problem = find_problem()
        if problem is not None and (problem != logged_problem or loop.time() - logged_at >= REPEAT_INTERVAL):
            level: Level = "error" if problem is EXHAUSTED else "warning"
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            logger.event(problem, level=level, limit=limit, remedy="raise the limit of open files (ulimit -n)")
            logged_at = loop.time()
        elif problem is None and logged_problem is not None:
            logger.event("there are enough file descriptors again")
        logged_problem = problem
        await asyncio.sleep(interval)


def find_problem() -> str | None:
    """Opens a file. The number of its descriptor tells how many are in use, since the lowest free one is taken."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        if error.errno in EXHAUSTED_ERRORS:
            return EXHAUSTED
        raise
    os.close(descriptor)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_scarce = limit != resource.RLIM_INFINITY and descriptor >= limit * WARNING_SHARE
    return SCARCE if is_scarce else None


EXHAUSTED: Final = "file descriptors ran out: new connections are refused"
SCARCE: Final = "file descriptors run short: more than 90 % of the limit are in use"
