"""File descriptors that run out are logged, once, and again after a minute."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import resource
import socket
from typing import Any

import pytest
from tests.ops.served_process import gateway
from tests.running import BOUND, one_upstream, until

from antiphon.ops import file_descriptors
from antiphon.ops.file_descriptors import EXHAUSTED, SCARCE, find_problem, raise_descriptor_limit, watch_descriptors
from antiphon.ops.logger import Logger

pytestmark = pytest.mark.without_coverage


def limit_to(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)


def test_problem_is_found_by_the_number_of_the_next_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_problem() is None
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    limit_to(monkeypatch, descriptor + 1)
    assert find_problem() is SCARCE
    limit_to(monkeypatch, resource.RLIM_INFINITY)
    assert find_problem() is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_problem_is_found_when_no_file_can_be_opened(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    refuse(monkeypatch, number)
    assert find_problem() is EXHAUSTED


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        find_problem()


def test_watcher_logs_changes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = iter([None, SCARCE, SCARCE, EXHAUSTED, EXHAUSTED, None, None])
    out = io.StringIO()

    def next_problem() -> str | None:
        try:
            return next(problems)
        except StopIteration:
            raise asyncio.CancelledError from None

    monkeypatch.setattr(file_descriptors, "find_problem", next_problem)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch_descriptors(Logger(out, "json"), interval=0))
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["level"], line["event"]) for line in lines] == [
        ("warning", SCARCE),
        ("error", EXHAUSTED),
        ("info", "there are enough file descriptors again"),
    ]


def test_limit_is_raised_to_the_allowed_maximum() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 512), before[1]))
    raise_descriptor_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])


@pytest.mark.io
def test_gateway_without_descriptors_logs_it_and_recovers() -> None:
    with gateway(one_upstream("http://127.0.0.1:1/v1")) as served:
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
        connections = [socket.create_connection(address, timeout=BOUND) for _ in range(80)]
        until(lambda: any(line["event"] == EXHAUSTED for line in served.log))
        for connection in connections:
            connection.close()
        until(lambda: any("enough file descriptors again" in line["event"] for line in served.log))
        assert served.get("/health").status_code == 200
        served.stop()
