"""The plugin `tests/io_guard.py`, in a run of pytest on a file of the test's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.inner_pytest import run_pytest

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

FORBIDDEN = """
import asyncio, multiprocessing, os, socket, subprocess, sys, threading
import pytest, uvloop

async def connect(): await asyncio.open_connection("127.0.0.1", 9)
async def serve(): await asyncio.start_server(print, "127.0.0.1", 0)
async def start(): await asyncio.create_subprocess_exec(sys.executable, "--version")
async def look_up(): await asyncio.get_running_loop().getaddrinfo("localhost", 80)

def test_connect(): socket.create_connection(("127.0.0.1", 9))
def test_bind(): socket.create_server(("127.0.0.1", 0))
def test_unix_socket(tmp_path): socket.socket(socket.AF_UNIX).bind(str(tmp_path / "socket"))
def test_datagram(): socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("127.0.0.1", 9))
def test_host_name(): socket.gethostbyname("localhost")
def test_process(): subprocess.run(["true"])
def test_shell(): os.system("true")
def test_fork(): os.fork() or os._exit(0)
def test_multiprocessing(): multiprocessing.get_context("spawn").Process(target=print).start()

@pytest.mark.parametrize("work", [connect, serve, start, look_up])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_event_loop(loop, work):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work())

def test_exception_is_caught():
    try:
        test_bind()
    except Exception:
        pass

def test_other_thread():
    thread = threading.Thread(target=test_exception_is_caught)
    thread.start()
    thread.join()

@pytest.fixture(scope="module")
def server():
    return socket.create_server(("127.0.0.1", 0))

def test_fixture(server): pass
"""
ALLOWED = """
import asyncio, socket, subprocess, threading
import pytest, uvloop

def test_socket_pair():
    for end in socket.socketpair():
        end.close()

@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_event_loop(loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.to_thread(print))

@pytest.mark.io
def test_marked():
    socket.create_server(("127.0.0.1", 0)).close()
    subprocess.run(["true"], check=True)
"""


def test_io_without_the_marker_fails_the_test(tmp_path: Path) -> None:
    status, output = run_pytest(tmp_path, plugin="tests.io_guard", files={"test_forbidden.py": FORBIDDEN})
    assert status == 1, output
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", output, flags=re.MULTILINE))
    functions = set(re.findall(r"^def (test_\w+)", FORBIDDEN, flags=re.MULTILINE))
    assert {name.partition("[")[0] for name in failed} == functions
    assert len(failed) == len(functions) + 7
    assert not re.search(r"^PASSED", output, flags=re.MULTILINE), output
    assert output.count("ForbiddenIo: this test does I/O (socket.bind(") >= 5
    assert "mark it with `@pytest.mark.io`" in output


def test_marked_tests_and_socket_pairs_are_allowed(tmp_path: Path) -> None:
    status, output = run_pytest(tmp_path, plugin="tests.io_guard", files={"test_allowed.py": ALLOWED})
    assert status == 0, output
    assert "4 passed" in output
