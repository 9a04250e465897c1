"""Fails a test that does I/O without the marker `io`: that opens a socket, looks up a host name or starts a process.

An audit hook of Python sees such calls. uvloop and multiprocessing call the system without audit events, so this plugin
wraps the functions that they use. Sockets of `socket.socketpair()`, which event loops need for themselves, are allowed.
"""

from __future__ import annotations

import _posixsubprocess
import sys
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest
import uvloop

#: Tests with these markers may do I/O.
MARKERS: Final = ("io", "heavy", "timed")
EVENTS: Final = frozenset(
    {
        *("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"),
        *("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system", "os.exec"),
        *("uvloop.Loop", "_posixsubprocess.fork_exec"),
    }
)
UVLOOP_METHODS: Final = (
    *("create_connection", "create_server", "create_unix_connection", "create_unix_server"),
    *("create_datagram_endpoint", "sock_connect", "getaddrinfo", "subprocess_exec", "subprocess_shell"),
)


class ForbiddenIo(RuntimeError):
    """A test without the marker `io` did I/O."""


class IoGuard:
    """Refuses I/O while a test without the marker `io` is set up or runs."""

    def __init__(self) -> None:
        self._is_active = False
        self._attempts: list[str] = []
        sys.addaudithook(self._refuse)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        yield from self._guard(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        yield from self._guard(item)

    def _guard(self, item: pytest.Item) -> Generator[None]:
        if any(item.get_closest_marker(name) for name in MARKERS):
            yield
            return
        self._is_active = True
        try:
            yield
        finally:
            self._is_active = False
            attempts, self._attempts = self._attempts, []
            if attempts:  # also where the tested code caught the exception, or another thread raised it
                raise ForbiddenIo(_message(attempts[0]))

    def _refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_active and event in EVENTS:
            attempt = f"{event}{arguments}"[:MAX_ATTEMPT]
            self._attempts.append(attempt)
            raise ForbiddenIo(_message(attempt))


def pytest_configure(config: pytest.Config) -> None:
    for name in UVLOOP_METHODS:
        _audit(uvloop.Loop, name, "uvloop.Loop")
    _audit(_posixsubprocess, "fork_exec", "_posixsubprocess.fork_exec")
    config.pluginmanager.register(IoGuard())


def _audit(owner: Any, name: str, event: str) -> None:
    """Replaces a function by one that raises an audit event first."""
    function: Callable[..., Any] = getattr(owner, name)

    def audited(*arguments: Any, **options: Any) -> Any:
        sys.audit(event, name)
        return function(*arguments, **options)

    setattr(owner, name, audited)


def _message(attempt: str) -> str:
    return f"this test does I/O ({attempt}): mark it with `@pytest.mark.io`, or its module with `pytestmark`"


MAX_ATTEMPT: Final = 200  # characters
