"""`testing/fixtures`: a test starts servers, and they stop with the test. The example of the page runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.testing.requests import send_request

from antiphon import testing
from antiphon.testing import FakeServer, fixtures, text, turn
from antiphon.testing.fixtures import StartChatServer, StartGeminiServer, StartMessagesServer, StartResponsesServer

pytestmark = pytest.mark.io
REPO = Path(__file__).parents[2]
CONVERSATION = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def answer_of(server: FakeServer, path: str, body: object) -> bytes:
    answer = send_request(server, path, body, headers={"x-version": "2023-06-01"})
    assert answer.status == 200, answer.body
    return answer.body


def test_fixtures_start_a_strict_server_of_each_dialect(
    start_chat_server: StartChatServer,
    start_responses_server: StartResponsesServer,
    start_messages_server: StartMessagesServer,
    start_gemini_server: StartGeminiServer,
) -> None:
    script = [turn(text("Hello"))]
    contents = {"contents": [{"parts": [{"text": "hi"}]}]}
    answers = [
        answer_of(start_chat_server(script), "/v1/chat/completions", CONVERSATION),
        answer_of(start_responses_server(script), "/v1/responses", {"model": "m", "input": "hi"}),
        answer_of(start_messages_server(script), "/v1/messages", {**CONVERSATION, "max_tokens": 9}),
        answer_of(start_gemini_server(script), "/v1beta/models/m:generateContent", contents),
    ]
    assert all(b"Hello" in answer for answer in answers)
    assert send_request(start_chat_server(key="k"), "/v1/chat/completions", CONVERSATION).status == 401


TESTS = """
import urllib.error, urllib.request
import pytest


servers = []

def test_server_listens(start_chat_server):
    servers.append(start_chat_server())
    assert servers[0].port

def test_server_has_stopped():
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(servers[0].origin)

def test_script_that_fails(start_chat_server):
    server = start_chat_server(lambda received: 1 / 0)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    headers = {"content-type": "application/json"}
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(server.base_url + "/chat/completions", body, headers))
"""


def run_pytest(folder: Path, tests: str) -> str:
    """Run tests in their own process, as a user's project does."""
    (folder / "conftest.py").write_text('pytest_plugins = ["antiphon.testing.fixtures"]\n')
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_servers_stop_with_their_test_and_a_script_that_fails_is_an_error(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, TESTS)
    assert "3 passed, 1 error" in output
    assert "ZeroDivisionError" in output


def test_example_of_the_page_passes(tmp_path: Path) -> None:
    page = (REPO / "docs" / "testing.md").read_text(encoding="utf-8")
    first = re.search(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert first
    assert "1 passed" in run_pytest(tmp_path, first[1])


def test_page_names_everything_public() -> None:
    page = (REPO / "docs" / "testing.md").read_text(encoding="utf-8")
    names = [*testing.__all__, *(name for name in vars(fixtures) if name.lower().startswith("start"))]
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []


@pytest.mark.parametrize("name", sorted(set(testing.__all__) - {"SSE_HEAD", "Reply"}))
def test_everything_public_has_a_docstring(name: str) -> None:
    assert getattr(testing, name).__doc__
